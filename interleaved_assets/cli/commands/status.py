"""``interleaved status``: print the shards that are not current, the reasons, and the stages of a run."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

import click

from interleaved_assets.cli.terminal.options import as_json_lines

if TYPE_CHECKING:
    from interleaved_assets.pipeline.status.dataset_status import DatasetStatus
    from interleaved_assets.pipeline.status.status import Status

SECTION: Final = "The shards of a project"
FAILURES_SHOWN: Final = 20
ENDINGS_SHOWN: Final = 5
"""Most endings that the line about files that are no shards names."""


@click.command("status")
@as_json_lines
@click.pass_obj
def status_command(file: str | None, *, as_json: bool) -> int:
    """List shards that are not current, the reasons and errors, and the stages that a run would make.

    The stored records are compared with the raw shards and the present settings, without Dagster.
    """
    from interleaved_assets.cli.terminal.console import console, print_error, print_json, progress
    from interleaved_assets.pipeline.status.dataset_status import read_dataset_status
    from interleaved_assets.pipeline.status.status import COMPLETE, status_lines
    from interleaved_assets.reporting.wording.text import counted
    from interleaved_assets.settings import load_settings

    settings, out = load_settings(file), console()
    dataset = read_dataset_status(settings)
    if dataset.problem:
        unknown = "changed and vanished shards cannot be recognized: " if dataset.keys else ""
        print_error(f"interleaved: {unknown}{dataset.problem}")
    statuses: dict[str, Status] = {}
    to_make: dict[str, list[str]] = {}
    with progress("comparing shards", len(dataset.keys), out, as_json=as_json, lines=True) as advance:
        for shard in dataset.shards():
            advance()
            statuses[shard.key] = shard.status
            to_make[shard.key] = dataset.stages_to_make(shard)
    if as_json:
        for key, status in statuses.items():
            why = "" if status == COMPLETE else status.text
            facts = {"shard": key, "state": status.state, "why": why, "stages": to_make[key]}
            if failure := dataset.failure_of(key, status):
                facts |= {"error": failure.error, "failed_at": failure.failed_at.isoformat()}
            print_json(facts)
        print_passed_over(dataset, as_json=True)
        return 2 if dataset.problem else 0
    if not statuses:
        if not dataset.problem:
            out.print_line(no_shards(settings.storage.raw_root))
        print_passed_over(dataset, as_json=False)
        return 2 if dataset.problem else 0
    lines = (
        (
            str(line.status.state),
            f"{line.shards:,}",
            "" if line.status == COMPLETE else line.status.text,
            ", ".join(_in_order((to_make[key] for key in line.keys), dataset)),
            line.examples,
        )
        for line in status_lines(statuses)
    )
    columns = ("state", "shards", "why", "stages to make", "for example")
    out.print_table(columns, lines, title=counted(len(statuses), "shard"), right=("shards",))
    for text in _failures(dataset, statuses):
        out.print_line(text)
    for text in _what_a_run_would_make(to_make, statuses.values(), dataset, settings.watch.nightly):
        out.print_line(text)
    print_passed_over(dataset, as_json=False)
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
    return f"no shards: no file below {raw_root} has a name that ends in {_endings()}; images need storage.bundles"


def print_passed_over(dataset: "DatasetStatus", *, as_json: bool) -> None:
    """Print how many files below the raw root are no shards, by their endings; nothing if there are none.

    With ``as_json``, stdout is for JSON, and the line goes to stderr.
    """
    from interleaved_assets.cli.terminal.console import console, print_error
    from interleaved_assets.io.formats.format import format_named
    from interleaved_assets.reporting.wording.text import counted

    alike: dict[str, list[str]] = {}
    for path in dataset.ignored:
        ending = PurePosixPath(path).suffix or "without an ending"
        alike.setdefault("leading to a folder by a link, not followed" if path.endswith("/") else ending, []).append(
            path
        )
    if not alike:
        return
    groups = sorted(alike.items(), key=lambda group: (-len(group[1]), group[0]))
    named = [f"{len(paths):,} {ending}, such as {paths[0]}" for ending, paths in groups[:ENDINGS_SHOWN]]
    if left := len(groups) - len(named):
        named.append(counted(left, "other ending"))
    were = f"{counted(len(dataset.ignored), 'file')} {'was' if len(dataset.ignored) == 1 else 'were'}"
    text = f"Below {dataset.storage.raw_root}, {were} passed over: {'; '.join(named)}."
    if dataset.raws:  # without shards, another line says what is one
        text += f" Names of shards end in {_endings()}; "
        text += "of names that differ only in the ending of a tar, one is a shard."
        if any((found := format_named(path)) and found.only_bundled for path in dataset.ignored):
            text += " Images are shards in bundles only: set storage.bundles, such as {images = 16}."
        text += " Formats other than storage.raw_formats are left out." if dataset.storage.raw_formats else ""
        text += " Unpack or rename files that should be read."
    if as_json:
        print_error(f"interleaved: {text}")
    else:
        console().print_line(text)


def _endings() -> str:
    from interleaved_assets.io.formats.registry import shard_endings

    *most, last = shard_endings()
    return f"{', '.join(most)} or {last}"


def _what_a_run_would_make(
    to_make: "Mapping[str, Sequence[str]]", statuses: "Iterable[Status]", dataset: "DatasetStatus", nightly: str
) -> list[str]:
    from interleaved_assets.pipeline.run.record import RAW_SHARDS
    from interleaved_assets.pipeline.status.dataset_status import NOT_AS_RECORDED
    from interleaved_assets.reporting.wording.text import counted

    due = [stages for stages in to_make.values() if stages]
    if not due:
        return ["A run would make nothing."]
    copied = any(NOT_AS_RECORDED in one.text or one.text.endswith(f"{RAW_SHARDS} changed") for one in statuses)
    return [
        f"A run would take {counted(len(due), 'shard')} through {', '.join(_in_order(due, dataset))}: interleaved run, "
        f"or in Dagster the schedule nightly ({nightly}, UTC) while it is on.",
        *(["It compares files that were only copied by their hash, and does not make them again."] if copied else []),
    ]


def _in_order(of_shards: "Iterable[Sequence[str]]", dataset: "DatasetStatus") -> list[str]:
    """Return the stages that any of the shards has to make, in the order of a run."""
    wanted = {stage for stages in of_shards for stage in stages}
    return [stage for stage in dataset.stages.stages if stage in wanted]
