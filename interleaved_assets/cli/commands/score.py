"""``interleaved score``: measure the images of one shard file."""

from collections.abc import Sequence
from typing import Final

import click

from interleaved_assets.cli.terminal.options import FILE, as_json, overwrite

SECTION: Final = "Shard files"


@click.command("score")
@click.argument("shard", type=FILE)
@click.argument("scores", type=FILE)
@click.option(
    "--scorer",
    "scorers",
    metavar="NAME",
    multiple=True,
    help="A scorer to run, such as sharpness_256; may be repeated. Default: the setting scoring.scorers.",
)
@click.option("--clip", is_flag=True, help="Also the scores of the model in [clip].")
@overwrite
@as_json
@click.pass_obj
def score_command(
    file: str | None,
    *,
    shard: str,
    scores: str,
    scorers: Sequence[str],
    clip: bool,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Measure the images of a shard file.

    SHARD is a shard file of any format; SCORES is the Parquet file to write.

    SCORES has one row per image: its size, the columns of the scorers, and the error if it cannot be measured.

    \b
    interleaved score data/raw/a.tar a.scores.parquet --scorer sharpness_256 --scorer qr
    """
    from interleaved_assets.cli.terminal.console import console, print_json, progress
    from interleaved_assets.model.columns import IMAGE_KEY
    from interleaved_assets.model.shown import without_credentials
    from interleaved_assets.pipeline.files.filtering import with_scorers
    from interleaved_assets.pipeline.files.inputs import find_shard_file
    from interleaved_assets.pipeline.files.score import score_file
    from interleaved_assets.reporting.wording.text import counted
    from interleaved_assets.settings import load_settings_or_defaults

    settings, out = with_scorers(load_settings_or_defaults(file), scorers, clip=clip), console()
    with progress("scoring", 1, out, as_json=as_json):
        scored = score_file(find_shard_file(shard, settings.storage), scores, settings, overwrite=overwrite)
    images, columns = scored.counts_out.images, [name for name in scored.columns if name not in IMAGE_KEY]
    if as_json:
        facts = {"images": images, "columns": columns, "errors": scored.errors}
        print_json({"input": without_credentials(shard), "output": scores, **facts})
        return 0
    errors = "".join(f", {code} {rows:,}" for code, rows in scored.errors.items())
    what = f"{counted(images, 'image')}{errors}; columns {', '.join(columns)}"
    out.print_line(f"{without_credentials(shard)} → {scores}: {what}")
    return 0
