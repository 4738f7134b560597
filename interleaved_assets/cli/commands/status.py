"""``interleaved status``: print the shards that are not current, the reasons, and the stages of a run."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import click

from interleaved_assets.cli.terminal.options import as_json_lines

if TYPE_CHECKING:
    from interleaved_assets.pipeline.run.stage import Stage
    from interleaved_assets.pipeline.status.dataset_status import DatasetStatus
    from interleaved_assets.pipeline.status.status import Status

SECTION: Final = "The shards of a project"
FAILURES_SHOWN: Final = 20


@click.command("status")
@as_json_lines
@click.pass_obj
def status_command(file: str | None, *, as_json: bool) -> int:
    """List shards that are not current, the reasons and errors, and the stages that a run would make.

    The stored records are compared with the raw shards and the present settings, without Dagster.
    """
    from interleaved_assets.cli.terminal.console import console, print_error, print_json, progress
    from interleaved_assets.pipeline.stages.dag import stage_dag
    from interleaved_assets.pipeline.status.dataset_status import read_dataset_status
    from interleaved_assets.pipeline.status.due import stages_due
    from interleaved_assets.pipeline.status.status import COMPLETE, status_lines
    from interleaved_assets.reporting.wording.text import counted
    from interleaved_assets.settings import load_settings

    settings, out = load_settings(file), console()
    dataset = read_dataset_status(settings)
    if dataset.problem:
        unknown = "changed and vanished shards cannot be recognized: " if dataset.keys else ""
        print_error(f"interleaved: {unknown}{dataset.problem}")
    stages = stage_dag(settings)
    statuses: dict[str, Status] = {}
    with progress("comparing shards", len(dataset.keys), out, as_json=as_json, lines=True) as advance:
        for shard in dataset.shards():
            advance()
            statuses[shard.key] = shard.status
    if as_json:
        for key, status in statuses.items():
            why = "" if status == COMPLETE else status.text
            facts = {"shard": key, "state": status.state, "why": why, "stages": stages_due([status], stages)}
            if failure := dataset.failure_of(key, status):
                facts |= {"error": failure.error, "failed_at": failure.failed_at.isoformat()}
            print_json(facts)
        return 2 if dataset.problem else 0
    if not statuses:
        if not dataset.problem:
            out.print_line(no_shards(settings.storage.raw_root))
        return 2 if dataset.problem else 0
    lines = (
        (
            str(line.status.state),
            f"{line.shards:,}",
            "" if line.status == COMPLETE else line.status.text,
            ", ".join(stages_due([line.status], stages)),
            line.examples,
        )
        for line in status_lines(statuses)
    )
    columns = ("state", "shards", "why", "stages to make", "for example")
    out.print_table(columns, lines, title=counted(len(statuses), "shard"), right=("shards",))
    for text in _failures(dataset, statuses):
        out.print_line(text)
    for text in _what_a_run_would_make(statuses, stages, settings.watch.nightly):
        out.print_line(text)
    return 2 if dataset.problem else 0


def _failures(dataset: "DatasetStatus", statuses: "Mapping[str, Status]") -> list[str]:
    """Return a line for each failed shard with its error, and a line about final tars from before the failures."""
    from interleaved_assets.pipeline.stages.names import FINAL_TARS
    from interleaved_assets.pipeline.status.status import State
    from interleaved_assets.reporting.wording.text import tars_from_before

    failed = {key: status for key, status in statuses.items() if status.state is State.FAILED}
    lines = []
    for key, status in list(failed.items())[:FAILURES_SHOWN]:
        failure = dataset.failure_of(key, status)
        when = f" on {failure.when}" if failure else ""
        lines.append(f"{key} failed at {status.stage}{when}: {dataset.problem_of(key, status)}")
    if left := len(failed) - len(lines):
        lines.append(f"… and {left:,} more failed shards; interleaved status --json has all of them")
    before = [key for key in failed if FINAL_TARS in (dataset.recorded or {}).get(key, ())]
    return [*lines, *([tars_from_before(before)] if before else [])]


def no_shards(raw_root: str) -> str:
    """Return the message for a raw root without shards."""
    from interleaved_assets.io.formats.registry import shard_endings

    *most, last = shard_endings()
    endings = f"{', '.join(most)} or {last}"
    return f"no shards: no file below {raw_root} has a name that ends in {endings}; images need storage.bundles"


def _what_a_run_would_make(statuses: "Mapping[str, Status]", stages: "Mapping[str, Stage]", nightly: str) -> list[str]:
    from interleaved_assets.pipeline.status.due import stages_due
    from interleaved_assets.reporting.wording.text import counted

    due = [status for status in statuses.values() if stages_due([status], stages)]
    if not due:
        return ["A run would make nothing."]
    return [
        f"A run would take {counted(len(due), 'shard')} through {', '.join(stages_due(due, stages))}: interleaved run, "
        f"or in Dagster the schedule nightly ({nightly}, UTC) while it is on.",
    ]
