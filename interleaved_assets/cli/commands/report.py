"""``interleaved report``: write the report on the data set, without Dagster."""

from typing import Final

import click

from interleaved_assets.cli.terminal.options import as_json

SECTION: Final = "The shards of a project"


@click.command("report")
@click.option("--open", "in_browser", is_flag=True, help="Open the report in the browser.")
@as_json
@click.pass_obj
def report_command(file: str | None, *, in_browser: bool, as_json: bool) -> int:
    """Write the report on the whole data set, one HTML page, without Dagster.

    The page is dataset_report.html below the output root, the same that the asset dataset_report writes. It has the
    numbers of kept rows and of dropped rows by reason, scores with their thresholds, shards to check first, and the
    reasons of failures.

    \b
    interleaved report --open
    """
    from interleaved_assets.cli.commands.status import no_shards
    from interleaved_assets.cli.terminal.console import console, open_page, print_error, print_json, progress
    from interleaved_assets.model.errors import StorageError
    from interleaved_assets.pipeline.status.dataset_status import read_dataset_status
    from interleaved_assets.reporting.dataset.write import write_report
    from interleaved_assets.reporting.wording.text import counted, most_frequent
    from interleaved_assets.settings import load_settings

    settings, out = load_settings(file), console()
    found = read_dataset_status(settings)
    if not found.keys:
        if found.problem:
            raise StorageError(found.problem)
        print_error(f"interleaved: {no_shards(settings.storage.raw_root)}")
        return 1
    with progress("reading records and scores", 1, out, as_json=as_json):
        report = write_report(found, settings)
    if found.problem:
        print_error(f"interleaved: {report.problems[0]}")
    states = most_frequent(report.data.by_state())
    totals = report.data.totals
    if as_json:
        sums = [tally._asdict() for tally in totals]
        print_json({"report": report.uri, "bytes": report.size, "shards": dict(states), "totals": sums})
    else:
        shards = ", ".join(f"{number:,} {state}" for state, number in states)
        kept = ", ".join(tally.text for tally in totals)
        out.print_line(f"{counted(len(found.keys), 'shard')}: {shards}; kept {kept}")
        out.print_line(report.uri)
    is_shown = open_page(report.uri) if in_browser else True
    return 2 if found.problem or not is_shown else 0
