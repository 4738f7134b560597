"""``interleaved select``: write the rows of one shard file that pass thresholds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from interleaved_assets.cli.terminal.options import FILE, as_json, filters, overwrite, policy

if TYPE_CHECKING:
    from interleaved_assets.model.errors import ErrorPolicy

SECTION: Final = "Shard files"


@click.command("select")
@click.argument("shard", type=FILE)
@click.argument("scores", type=FILE)
@click.argument("output", type=FILE)
@click.option(
    "--ledger", metavar="FILE", help="Parquet file for dropped rows; default: OUTPUT.dropped.parquet.", type=FILE
)
@filters
@policy
@overwrite
@as_json
@click.pass_obj
def select_command(
    file: str | None,
    *,
    shard: str,
    scores: str,
    output: str,
    ledger: str | None,
    filters: Sequence[str],
    policy: "ErrorPolicy | None",
    overwrite: bool,
    as_json: bool,
) -> int:
    """Write the rows of a shard file that pass thresholds.

    SHARD is a shard file of any format, SCORES the output of `interleaved score` for it. OUTPUT is a tar or a Parquet
    file, by its ending.

    Texts are measured here if a filter compares their scores; functions of [rewriting] are not applied.

    Without --filter, all filters of the section [selection] are applied; with it, only those that are given. Every
    dropped row is in the ledger, with its reason, measured value and threshold.

    \b
    interleaved select data/raw/a.tar a.scores.parquet a.selected.tar --filter min_sharpness_256=100
    """
    from interleaved_assets.cli.terminal.console import console, counted_drops, print_error, print_json, progress
    from interleaved_assets.cli.terminal.name_value import names_and_values
    from interleaved_assets.model.shown import without_credentials
    from interleaved_assets.pipeline.files.filtering import selection_settings
    from interleaved_assets.pipeline.files.inputs import find_shard_file, with_policy
    from interleaved_assets.pipeline.files.score import select_file
    from interleaved_assets.settings import load_settings_or_defaults

    settings, out = with_policy(load_settings_or_defaults(file), policy), console()
    ledger = ledger or f"{output}.dropped.parquet"
    whole_section = not filters
    selection = selection_settings(settings, names_and_values(filters), whole_section=whole_section)
    assert selection is not None
    with progress("selecting", 1, out, as_json=as_json):
        selected, passed_over = select_file(
            find_shard_file(shard, settings.storage),
            scores,
            output,
            ledger,
            settings,
            selection,
            whole_section=whole_section,
            overwrite=overwrite,
        )
    if passed_over:
        print_error(f"filters that need other scores and are not applied: {', '.join(passed_over)}")
    before, after = selected.counts_in, selected.counts_out
    if as_json:
        facts = {"counts_in": before.model_dump(), "counts_out": after.model_dump(), "dropped": selected.dropped}
        print_json({"input": without_credentials(shard), "output": output, "ledger": ledger, **facts})
        return 0
    what = f"{after.samples:,} of {before.samples:,} samples, {after.images:,} of {before.images:,} images"
    out.print_line(f"{without_credentials(shard)} → {output}: {what}")
    dropped = f": {counted_drops(selected.dropped)}" if selected.dropped else ""
    out.print_line(f"  {before.rows - after.rows:,} of {before.rows:,} rows dropped{dropped}")
    out.print_line(f"  ledger {ledger}")
    return 0
