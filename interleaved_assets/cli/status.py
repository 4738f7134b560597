"""``interleaved status``: which shards are not current, why, and what a run would make."""

from rich.table import Table

from interleaved_assets.cli.console import console, print_error, print_json, progress
from interleaved_assets.pipeline.dataset_status import read_dataset_status
from interleaved_assets.pipeline.due import stages_due
from interleaved_assets.pipeline.parallel import READERS, parallel_map
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status import COMPLETE, Status, status_lines
from interleaved_assets.reporting.text import counted
from interleaved_assets.settings import load_settings


def show_status(file: str | None, *, as_json: bool) -> int:
    """Print the shards by status, with the stages that a run would make; returns the exit code."""
    settings, out = load_settings(file), console()
    dataset = read_dataset_status(settings)
    if dataset.problem:
        print_error(f"interleaved: changed and vanished shards cannot be recognized: {dataset.problem}")
    stages = stage_dag(settings)
    statuses: dict[str, Status] = {}
    with progress("comparing shards", len(dataset.keys), out, as_json=as_json, lines=True) as advance:
        found = parallel_map(dataset.find_status, dataset.keys, threads=READERS)
        for key, status in zip(dataset.keys, found, strict=True):
            advance()
            statuses[key] = status
    if as_json:
        for key, status in statuses.items():
            why = "" if status == COMPLETE else status.text
            print_json({"shard": key, "state": status.state, "why": why, "stages": stages_due([status], stages)})
        return 2 if dataset.problem else 0
    table = Table(title=counted(len(statuses), "shard"), title_justify="left")
    for column in ("state", "shards", "why", "stages to make", "for example"):
        table.add_column(column, overflow="fold", justify="right" if column == "shards" else "left")
    for line in status_lines(statuses):
        why = "" if line.status == COMPLETE else line.status.text
        to_make = ", ".join(stages_due([line.status], stages))
        table.add_row(str(line.status.state), f"{line.shards:,}", why, to_make, line.examples)
    out.print(table)
    due = [status for status in statuses.values() if stages_due([status], stages)]
    out.print(
        f"tonight: {len(due):,} shards through {', '.join(stages_due(due, stages)) or 'no stage'}. The schedule "
        f"nightly ({settings.watch.nightly}, UTC) requests them while it is on. Failed shards count as missing here; "
        "dataset_report has their errors."
    )
    return 2 if dataset.problem else 0
