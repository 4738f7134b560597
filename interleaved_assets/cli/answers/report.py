"""The work of ``interleaved report``: write the report on the data set, without Dagster."""

from interleaved_assets.cli.answers.status import no_shards
from interleaved_assets.cli.terminal.browser import open_page
from interleaved_assets.cli.terminal.console import console, print_error, print_json, progress
from interleaved_assets.model.errors import StorageError
from interleaved_assets.pipeline.status.dataset_status import read_dataset_status
from interleaved_assets.reporting.dataset.write import write_report
from interleaved_assets.reporting.wording.text import counted, most_frequent
from interleaved_assets.settings import load_settings


def show_report(file: str | None, *, in_browser: bool, as_json: bool) -> int:
    """Write the report, print its place and totals, and return the exit code: 1 if there are no shards."""
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
