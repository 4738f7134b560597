"""``interleaved trace``: follow a sample or a final tar through the stored outputs and records."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import click

from interleaved_assets.cli.commands.drops import DIGITS
from interleaved_assets.cli.terminal.complete import complete_made_shards
from interleaved_assets.cli.terminal.options import FILE, as_json

if TYPE_CHECKING:
    from interleaved_assets.cli.terminal.console import DataConsole
    from interleaved_assets.pipeline.lineage.images import NamedImage
    from interleaved_assets.pipeline.lineage.sample import StageTrace, TracedRow
    from interleaved_assets.pipeline.lineage.tar import TarTrace

SECTION: Final = "Samples and dropped rows"
_MEMBERS_SHOWN: Final = 12
_COLUMNS: Final = ("position", "modality", "outcome", "measured", "threshold", "detail")


@click.command("trace")
@click.argument("sample_id", required=False, metavar="[SAMPLE_ID|IMAGE]")
@click.option(
    "--tar",
    metavar="PATH",
    help="A final tar or a tar of exported images, path or URL: its raw shard, each stage's settings and hashes.",
    type=FILE,
)
@click.option(
    "--shard",
    metavar="KEY",
    help="Key of the sample's shard; default: search all shards.",
    shell_complete=complete_made_shards,
)
@click.option("--all", "every_row", is_flag=True, help="A line for each kept row too, and every member of its tar.")
@as_json
@click.pass_obj
def trace_command(file: str | None, sample_id: str | None, tar: str | None, as_json: bool, **given: Any) -> int:
    """Show the path of a sample through the stages, or the origin of a tar.

    SAMPLE_ID is the id of a sample, as in ledgers and pages. IMAGE is the name of an image as drops shows it, with or
    without folders and frame: the samples that have it are shown.

    Each stage lists the sample's rows by position: dropped rows with reason, measured value and threshold, stored
    errors, and kept rows summed up. The last entry is the final tar, or its part, with the sample's members.

    \b
    interleaved trace paper-17
    interleaved trace paper-17 --shard 2024/part-0003 --all
    interleaved trace paper-17.0.jpg
    interleaved trace --tar data/curated/tars/a.tar
    """
    if (sample_id is None) == (tar is None):
        raise click.UsageError("trace takes either SAMPLE_ID or --tar PATH", click.get_current_context())
    if tar is not None:
        return show_tar(file, tar, as_json=as_json)
    return show_sample(file, sample_id or "", as_json=as_json, **given)


def show_sample(file: str | None, sample_id: str, *, shard: str | None, every_row: bool, as_json: bool) -> int:
    """Print the path of a sample, and return the exit code. With ``every_row`` each kept row and member is printed."""
    from interleaved_assets.cli.terminal.console import console, print_error, print_json, progress, short
    from interleaved_assets.cli.terminal.shard_keys import stored_keys_problem
    from interleaved_assets.model.errors import InterleavedError
    from interleaved_assets.pipeline.lineage.images import find_image
    from interleaved_assets.pipeline.lineage.sample import find_sample
    from interleaved_assets.pipeline.run.stored_records import recorded_stages
    from interleaved_assets.pipeline.stages.dag import stage_dag
    from interleaved_assets.reporting.wording.text import counted
    from interleaved_assets.settings import load_settings

    settings, out = load_settings(file), console()
    if problem := stored_keys_problem([shard] if shard else [], settings.storage):
        print_error(f"interleaved: {problem}")
        return 1
    stages = stage_dag(settings)
    # recorded shards, not those below the raw root: outputs of a removed raw shard still exist
    keys = [shard] if shard else sorted(recorded_stages(settings.storage, stages))
    found: list[dict[str, Any]] = []
    skipped: dict[str, str] = {}
    unread: list[str] = []
    """Shards whose final tars could not be read."""

    def skip(key: str, error: InterleavedError) -> None:
        skipped[key] = str(error)
        print_error(f"interleaved: shard {key} was skipped: {error}")

    def show(one: str, below: Iterable[str]) -> None:
        for key, traces in find_sample(one, below, settings.storage, stages):
            if isinstance(traces, InterleavedError):
                skip(key, traces)
                continue
            found.append(_facts_of_sample(key, traces) if as_json else {})
            if not as_json:
                _print_sample(one, key, traces, out, every_row=every_row)
            for trace in traces:
                if isinstance(trace.in_tar, InterleavedError):
                    unread.append(key)
                    print_error(f"interleaved: {trace.in_tar}")

    with progress("searching shards", len(keys), out, as_json=as_json, lines=True) as advance:
        show(sample_id, _counted(keys, advance))
    images: list[NamedImage] = []
    if not found:
        for key, named in find_image(sample_id, [key for key in keys if key not in skipped], settings.storage):
            if isinstance(named, InterleavedError):
                skip(key, named)
            else:
                images += named
        for image in [] if as_json else images:
            place = f"at position {image.position} of sample {image.sample_id} in shard {image.shard}"
            out.print(f"{image.image} is the image {place}", soft_wrap=True)
        for key, of_image in dict.fromkeys((image.shard, image.sample_id) for image in images):
            show(of_image, [key])
    if as_json:
        by_image = {"images": [image._asdict() for image in images]} if images else {}
        print_json({"sample_id": sample_id, "searched": len(keys), "skipped": skipped, **by_image, "shards": found})
    if not found:
        of_them = f", {len(skipped)} of them skipped" if skipped else ""
        print_error(
            f"interleaved: no sample {short(sample_id)} in {counted(len(keys), 'shard')}{of_them}, "
            "and no image of this name"
        )
    return 2 if skipped or unread else 0 if found else 1


def _counted(keys: Iterable[str], advance: Callable[[], None]) -> Iterator[str]:
    """Yield ``keys``, and count each when its search begins, because shards without the sample yield nothing."""
    for key in keys:
        advance()
        yield key


def _print_sample(
    sample_id: str, key: str, traces: "Sequence[StageTrace]", out: "DataConsole", *, every_row: bool
) -> None:
    source = traces[0].record.source
    out.print(f"{sample_id} in shard {key}{f', {source.uri}' if source else ''}", soft_wrap=True)
    for trace in traces:
        if rows := trace.rows():
            out.print(f"{trace.record.stage}  {trace.record.rows_uri}", soft_wrap=True)
            out.print_table(_COLUMNS, _lines(rows, every_row=every_row))
        if trace.kept is None:
            out.print(_in_tar(trace, every_member=every_row), soft_wrap=True)


def _facts_of_sample(key: str, traces: "Sequence[StageTrace]") -> dict[str, Any]:
    source = traces[0].record.source
    return {
        "shard": key,
        "source": source.uri if source else None,
        "stages": [
            {
                "stage": trace.record.stage,
                "output": trace.record.rows_uri,
                "rows": [row._asdict() for row in trace.rows()],
                "kept": trace.left,
                **_facts_of_place(trace),
            }
            for trace in traces
        ],
    }


def _facts_of_place(trace: "StageTrace") -> dict[str, Any]:
    """Return the tar and the members of the sample, or the error; nothing for a stage that writes tables."""
    from interleaved_assets.model.errors import InterleavedError

    if trace.in_tar is None:
        return {}
    if isinstance(trace.in_tar, InterleavedError):
        return {"tar": None, "members": None, "error": str(trace.in_tar)}
    return {"tar": trace.in_tar.uri, "members": [member._asdict() for member in trace.in_tar.members]}


def show_tar(file: str | None, uri: str, *, as_json: bool) -> int:
    """Print the origin of a tar, and return the exit code: 2 if its bytes differ from those that were written."""
    from interleaved_assets.cli.terminal.console import console, print_error, print_json
    from interleaved_assets.pipeline.lineage.tar import trace_tar
    from interleaved_assets.settings import load_settings

    trace = trace_tar(uri, load_settings(file))
    if as_json:
        print_json(_facts_of_tar(trace))
    else:
        _print_tar(trace, console())
    if not trace.as_recorded:
        print_error(
            f"interleaved: {trace.uri} differs from what was written: its record has {trace.recorded.size:,} bytes, "
            f"{trace.recorded.content}. Delete it and materialize {trace.stage} of shard {trace.key}."
        )
    return 0 if trace.as_recorded else 2


def _print_tar(trace: "TarTrace", out: "DataConsole") -> None:
    import json

    facts = [("tar", trace.uri), ("stage", trace.stage), ("shard", trace.key), ("content", trace.content)]
    if trace.source is not None:
        facts.append(("raw shard", f"{trace.source.uri}  {trace.source.size:,} bytes  {trace.source.version}"))
    out.print_facts([*facts, ("status", trace.status)])
    for name, record in trace.records.items():
        out.print()
        out.print(name)
        again = "  made again since: not the version in this tar" if name in trace.remade else ""
        lines = [("version", f"{record.data_version}{again}"), ("code", record.code_version)]
        lines += [(f"from {source}", version) for source, version in record.inputs.items()]
        lines += [
            (role, f"{output.uri}  {output.size:,} bytes  {output.content}") for role, output in record.outputs.items()
        ]
        lines.append(("settings", json.dumps(record.settings, ensure_ascii=False, sort_keys=True)))
        if record.packages:
            lines.append(("packages", ", ".join(" ".join(package) for package in record.packages.items())))
        if record.notes:  # such as the device and the model of CLIP, or the applied filters
            lines.append(("notes", json.dumps(record.notes, ensure_ascii=False, sort_keys=True)))
        out.print_facts(lines)


def _facts_of_tar(trace: "TarTrace") -> dict[str, Any]:
    return {
        "tar": trace.uri,
        "stage": trace.stage,
        "shard": trace.key,
        "content": trace.content,
        "as_recorded": trace.as_recorded,
        "source": trace.source.model_dump(mode="json") if trace.source else None,
        "status": trace.status,
        "made_again": trace.remade,
        "records": {name: record.model_dump(mode="json") for name, record in trace.records.items()},
    }


def _in_tar(trace: "StageTrace", *, every_member: bool) -> str:
    from interleaved_assets.pipeline.lineage.sample import SampleInTar
    from interleaved_assets.reporting.wording.text import counted

    rows = counted(trace.left, "row")
    if not isinstance(trace.in_tar, SampleInTar):
        return f"{trace.record.stage}  {trace.record.rows_uri}: {rows if trace.left else 'no row of it'}"
    names = [member.name for member in trace.in_tar.members]
    if not every_member and len(names) > _MEMBERS_SHOWN:
        names[_MEMBERS_SHOWN - 1 :] = [f"and {len(names) - _MEMBERS_SHOWN + 1} more"]
    return f"{trace.record.stage}  {trace.in_tar.uri}: {', '.join(names)}: {rows}"


def _lines(rows: "Sequence[TracedRow]", *, every_row: bool) -> Iterator[tuple[str, ...]]:
    from interleaved_assets.model.digits import bound, measured

    for plain, part in groupby(rows, key=lambda row: row.is_plain):
        group = list(part)
        if plain and not every_row and len(group) > 1:
            yield _summed_up(group)
            continue
        for row in group:
            limit = row.threshold
            said = _scores(row.scores) if row.measured is None else measured(row.measured, limit, digits=DIGITS)
            yield str(row.position), row.modality, row.outcome, said, "" if limit is None else bound(limit), row.detail


def _summed_up(rows: "Sequence[TracedRow]") -> tuple[str, ...]:
    """Return one line for consecutive rows that have nothing to report."""
    from interleaved_assets.model.digits import score

    counts = Counter(row.modality for row in rows)
    ranges = {
        name: (min(values), max(values))
        for name in {name: None for row in rows for name in row.scores}
        if (values := [row.scores[name] for row in rows if name in row.scores])
    }
    measured = ", ".join(
        f"{name} {score(low, DIGITS)}" if low == high else f"{name} {score(low, DIGITS)} to {score(high, DIGITS)}"
        for name, (low, high) in ranges.items()
    )
    return (
        f"{rows[0].position} to {rows[-1].position}",
        ", ".join(f"{count} {modality}" for modality, count in counts.items()),
        " / ".join(dict.fromkeys(row.outcome for row in rows)),
        measured,
        "",
        "",
    )


def _scores(scores: dict[str, float]) -> str:
    from interleaved_assets.model.digits import score

    return ", ".join(f"{name} {score(value, DIGITS)}" for name, value in scores.items())
