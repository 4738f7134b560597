"""Commands for the lineage of samples and shards: ``trace``, ``drops``, ``view``."""

from typing import Any

import click

from interleaved_assets.cli.terminal.complete import complete_made_shards, complete_shards_and_files
from interleaved_assets.cli.terminal.options import FILE, as_json, overwrite


@click.command("trace")
@click.argument("sample_id", required=False)
@click.option(
    "--tar",
    metavar="PATH",
    help="A final tar or a tar of exported images, path or URL: its raw shard, each stage's settings and hashes.",
    type=FILE,
)
@click.option(
    "--shard",
    metavar="KEY",
    help="Partition key of the sample's shard; default: search all shards.",
    shell_complete=complete_made_shards,
)
@click.option("--all", "every_row", is_flag=True, help="A line for each kept row too, and every member of its tar.")
@as_json
@click.pass_obj
def trace_command(file: str | None, sample_id: str | None, tar: str | None, as_json: bool, **given: Any) -> int:
    """Show the path of SAMPLE_ID through the stages, or the origin of a tar.

    Each stage lists the sample's rows by position: dropped rows with reason, measured value and threshold, stored
    errors, and kept rows summed up. The last entry is the final tar, or its part, with the sample's members.

    \b
    interleaved trace paper-17
    interleaved trace paper-17 --shard 2024/part-0003 --all
    interleaved trace --tar data/curated/tars/a.tar
    """
    from interleaved_assets.cli.answers.trace import show_sample, show_tar

    if (sample_id is None) == (tar is None):
        raise click.UsageError("trace takes either SAMPLE_ID or --tar PATH", click.get_current_context())
    if tar is not None:
        return show_tar(file, tar, as_json=as_json)
    return show_sample(file, sample_id or "", as_json=as_json, **given)


@click.command("drops")
@click.option(
    "--shard", metavar="KEY", required=True, help="Partition key of the shard.", shell_complete=complete_made_shards
)
@click.option("--reason", help="Only rows dropped for this reason, such as sharpness_below.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, with whole texts.")
@click.pass_obj
def drops_command(file: str | None, **given: Any) -> int:
    """List the dropped rows of a shard with reason, measured value, threshold, and their text or fields.

    \b
    interleaved drops --shard 2024/part-0003
    interleaved drops --shard 2024/part-0003 --reason ratio_above --json
    """
    from interleaved_assets.cli.answers.drops import show_drops

    return show_drops(file, **given)


@click.command("view")
@click.argument("shard", metavar="KEY|TAR|PARQUET", shell_complete=complete_shards_and_files)
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Most documents; default: 200.")
@click.option("--sample-id", "sample_ids", metavar="ID", multiple=True, help="Only this document; can be repeated.")
@click.option(
    "--reason", "reasons", metavar="NAME", multiple=True, help="Only documents that lost rows for it; can be repeated."
)
@click.option("--random", metavar="N", type=click.IntRange(min=1), help="N documents at random.")
@click.option("--seed", metavar="N", type=click.IntRange(min=0), default=0, help="Of --random; default: 0.")
@click.option(
    "--out", "page_file", metavar="FILE", help="Where the page goes; default: <name>.html in this folder.", type=FILE
)
@click.option("--open", "in_browser", is_flag=True, help="Open the page in the browser.")
@overwrite
@as_json
@click.pass_obj
def view_command(file: str | None, **given: Any) -> int:
    """Show documents on one HTML page: texts and images in order, with dropped rows in their places.

    KEY is the partition key of a shard of this project; its page has stage, reason, measured value and threshold of
    each drop. A tar or Parquet file, path or URL, needs no project.

    \b
    interleaved view web/part-0003 --open
    interleaved view web/part-0003 --reason qr_above --limit 20
    interleaved view some.tar --random 50 --seed 1
    """
    from interleaved_assets.cli.answers.view import show_documents

    return show_documents(file, **given)
