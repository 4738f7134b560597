"""Commands for the shards of a project: ``run``, ``status``, ``report``, ``serve``, ``what-if``, ``forget``."""

from typing import Any

import click

from interleaved_assets.cli.terminal.complete import complete_made_shards, complete_raw_shards, complete_vanished_shards
from interleaved_assets.cli.terminal.options import as_json, as_json_lines, jobs


@click.command("run")
@click.argument("shards", nargs=-1, metavar="[KEY…]", shell_complete=complete_raw_shards)
@jobs
@as_json_lines
@click.pass_obj
def run_command(file: str | None, **given: Any) -> int:
    """Take shards through all stages, without Dagster.

    Outputs and records are the same as those of a run in Dagster, which finds them current.

    KEY is the path of a raw shard below storage.raw_root without its ending. Without a KEY, the command takes all
    shards that are not current. A shard that fails does not stop the others.

    \b
    interleaved run
    interleaved run 2024/part-0003 2024/part-0004 --jobs 4
    """
    from interleaved_assets.cli.answers.run import show_run

    return show_run(file, **given)


@click.command("status")
@as_json_lines
@click.pass_obj
def status_command(file: str | None, as_json: bool) -> int:
    """List shards that are not current, the reasons and errors, and the stages that a run would make.

    The stored records are compared with the raw shards and the present settings, without Dagster.
    """
    from interleaved_assets.cli.answers.status import show_status

    return show_status(file, as_json=as_json)


@click.command("report")
@click.option("--open", "in_browser", is_flag=True, help="Open the report in the browser.")
@as_json
@click.pass_obj
def report_command(file: str | None, in_browser: bool, as_json: bool) -> int:
    """Write the report on the whole data set, one HTML page, without Dagster.

    The page is dataset_report.html below the output root, the same that the asset dataset_report writes. It has the
    numbers of kept rows and of dropped rows by reason, scores with their thresholds, shards to check first, and the
    reasons of failures.

    \b
    interleaved report --open
    """
    from interleaved_assets.cli.answers.report import show_report

    return show_report(file, in_browser=in_browser, as_json=as_json)


@click.command("serve")
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    metavar="N",
    help="Port of the loopback interface; default: that of serve.url, else 3010.",
)
@as_json
@click.pass_obj
def serve_command(file: str | None, port: int | None, as_json: bool) -> int:
    """Show report, pages and ledgers in the browser, also of a bucket.

    The pages are at http://127.0.0.1:3010/ until Ctrl-C, for this machine only, for reading only, without a log-in.
    The first page has the state of every shard. No other file of the output root is shown.

    \b
    interleaved serve
    interleaved serve --port 3011
    """
    from interleaved_assets.cli.answers.serve import show_outputs

    return show_outputs(file, port=port, as_json=as_json)


@click.command("what-if")
@click.argument("changes", nargs=-1, required=True, metavar="NAME=VALUE…")
@click.option(
    "--shard",
    "shards",
    metavar="KEY",
    multiple=True,
    help="Partition key; default: every scored shard.",
    shell_complete=complete_made_shards,
)
@as_json
@click.pass_obj
def what_if_command(file: str | None, **given: Any) -> int:
    """Show what other thresholds would keep, from stored scores.

    No image is read, and no file is written.

    NAME is a setting of [selection]; own.brightness.max is a bound of your own filter brightness.

    \b
    interleaved what-if min_sharpness_256=80
    interleaved what-if min_clip=0.2 max_qr_area_ratio=0.1
    """
    from interleaved_assets.cli.answers.what_if import show_what_if

    return show_what_if(file, **given)


@click.command("forget")
@click.argument("shards", nargs=-1, metavar="[KEY…]", shell_complete=complete_vanished_shards)
@click.option("--vanished", is_flag=True, help="All shards that have records but no raw shard.")
@click.option("--yes", is_flag=True, help="Remove the files, and the partitions; default: only list the files.")
@as_json
@click.pass_obj
def forget_command(file: str | None, shards: tuple[str, ...], vanished: bool, yes: bool, as_json: bool) -> int:
    """Remove the stored files of shards whose raw shard is gone: records, outputs and partition.

    Without --yes, the files are only listed.

    \b
    interleaved forget --vanished
    interleaved forget 2024/part-0003 --yes
    """
    from interleaved_assets.cli.answers.forget import show_forgotten

    if bool(shards) == vanished:
        raise click.UsageError("forget takes either keys of shards or --vanished", click.get_current_context())
    return show_forgotten(file, shards=shards, vanished=vanished, remove=yes, as_json=as_json)
