"""The ``interleaved`` command: questions about the data set, answered from stored outputs without the UI."""

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from interleaved_assets.io.tar.layout import member_key
from interleaved_assets.model.errors import InterleavedError, OptionError, SettingsError
from interleaved_assets.model.shown import escaped, shown
from interleaved_assets.pipeline.lineage.sample import StageTrace, find_sample
from interleaved_assets.pipeline.lineage.tar import TarTrace, trace_tar
from interleaved_assets.pipeline.parallel import parallel_map
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.stages.filtered import deciding_tables
from interleaved_assets.pipeline.stages.outputs import scored_keys
from interleaved_assets.pipeline.stored_records import recorded_stages
from interleaved_assets.selection.what_if import Outcome, changed_settings, what_if
from interleaved_assets.settings import Settings, load_settings

PLAIN_WIDTH = 160
"""Columns of a table that goes to a file or a pipe."""
SHARDS_AT_A_TIME = 8
"""Shards that ``what-if`` reads at once; each takes up to ``run.max_batch_bytes`` for its texts."""
LONGEST_SHOWN = 80
"""Characters of an argument that a message repeats."""
LONGEST_LINE = 2000
"""Characters of a line of an error message, which may name a path of any length."""
LONGEST_VALUE = 1000
"""Characters of a value given to ``what-if``; Python converts at most 4,300 digits to a number."""
TRACE = "Follows one sample, or one final tar, through the stored outputs and records of the stages."
WHAT_IF = "Runs selection on the stored scores with changed settings of [selection]. Reads no image, writes nothing."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0 done, 1 nothing found, 2 an error, reported on stderr."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        _check_arguments(given)
        options = parser().parse_args(given)
        return options.run(options, _console())
    except InterleavedError as error:
        _print_error(f"interleaved: {error}")
        return 2


def _check_arguments(arguments: Sequence[str]) -> None:
    """Refuse arguments that are not text: ids, keys and paths are text, and Arrow and JSON fail on other bytes.

    Raises:
        OptionError: an argument is not UTF-8, or has a zero byte.
    """
    for argument in arguments:
        if "\0" in argument or re.search("[\ud800-\udfff]", argument):  # Python represents bytes that are not UTF-8 so
            raise OptionError(f"argument {_short(argument)} is not UTF-8 text")


class _DataConsole(Console):
    """Prints text from data without markup, such as ``[left]`` in a sample id, and without control characters.

    All texts, cells and titles given as ``str`` pass :meth:`render_str`.
    """

    def render_str(self, text: str, **style: Any) -> Text:
        return super().render_str(escaped(text), **style)


def _console() -> Console:
    return _DataConsole(markup=False, emoji=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)


def _print_error(text: str) -> None:
    print(_cut(shown(text)), file=sys.stderr)


def _cut(text: str) -> str:
    return "\n".join(f"{line[:LONGEST_LINE]}…" if len(line) > LONGEST_LINE else line for line in text.split("\n"))


def _short(text: str) -> str:
    return repr(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        super().error(_cut(shown(message)))


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    top = _Parser("interleaved", description="Questions about a data set of interleaved shards.")
    top.add_argument("--settings", metavar="FILE", help="settings file; default: interleaved.toml in this folder")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    show = commands.add_parser("settings", help="every setting with its value, unit, range and default")
    show.set_defaults(run=show_settings)

    trace = commands.add_parser(
        "trace", help="the path of one sample through the stages, or the origin of a final tar", description=TRACE
    )
    what = trace.add_mutually_exclusive_group(required=True)
    what.add_argument("sample_id", nargs="?", help="a sample: its rows at every stage, with drop reasons")
    what.add_argument(
        "--tar", metavar="PATH", help="a final tar, path or URL: its raw shard, and each stage's settings and hashes"
    )
    trace.add_argument("--shard", metavar="KEY", help="partition key of the sample's shard; default: search all shards")
    trace.set_defaults(run=show_trace)
    what_if_parser = commands.add_parser(
        "what-if", help="what other thresholds would keep, from stored scores", description=WHAT_IF
    )
    what_if_parser.add_argument(
        "change", nargs="+", metavar="NAME=VALUE", help="a setting of [selection], such as min_sharpness=80"
    )
    what_if_parser.add_argument(
        "--shard", metavar="KEY", action="append", help="partition key; default: every scored shard"
    )
    what_if_parser.set_defaults(run=show_what_if)
    return top


def show_what_if(options: argparse.Namespace, console: Console) -> int:
    """Compare the selection under the settings in force with that under changed settings."""
    settings = load_settings(options.settings)
    overrides = dict(_override(text) for text in options.change)
    changed = changed_settings(settings.selection, overrides)
    keys = options.shard or scored_keys(settings.storage)
    if not keys:
        _print_error("no shard has been scored yet: materialize image_scores first")
        return 1

    def outcomes(key: str) -> tuple[Outcome, Outcome]:
        rows, scores = deciding_tables(
            settings.storage.shard(key),
            with_clip=settings.clip.enabled,
            max_batch_bytes=settings.run.max_batch_bytes,
        )
        return what_if(rows, scores, settings.selection), what_if(rows, scores, changed)

    now, then = Outcome(), Outcome()
    for of_now, of_then in parallel_map(outcomes, keys, threads=SHARDS_AT_A_TIME):
        now, then = now + of_now, then + of_then
    table = Table(title=f"{', '.join(options.change)}, {len(keys)} shards", title_justify="left")
    table.add_column("")
    for column in ("now", "then", "difference"):
        table.add_column(column, justify="right")
    lines = [(name, getattr(now, name), getattr(then, name)) for name in ("samples_kept", "images_kept", "rows_kept")]
    reasons = sorted({*now.dropped, *then.dropped})
    lines += [(f"dropped: {name}", now.dropped.get(name, 0), then.dropped.get(name, 0)) for name in reasons]
    for name, before, after in lines:
        table.add_row(name, f"{before:,}", f"{after:,}", f"{after - before:+,}")
    console.print(table)
    return 0


def _override(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign:
        raise SettingsError(f"what-if: {_short(text)} is not NAME=VALUE, such as min_sharpness=80")
    if len(value) > LONGEST_VALUE:
        raise SettingsError(f"what-if: the value of {_short(name)} has {len(value)} characters, over {LONGEST_VALUE}")
    try:
        found = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return name, value  # an unquoted text, such as drop_row
    except RecursionError:
        raise SettingsError(f"what-if: the value of {_short(name)} is nested too deeply") from None
    if len(found) > 1:
        raise SettingsError(f"what-if: {_short(text)} holds more than one value")
    return name, found["value"]


def show_settings(options: argparse.Namespace, console: Console) -> int:
    """Print every setting in force."""
    table = Table("setting", "value", "meaning")
    for name, value, description in _leaves(load_settings(options.settings)):
        table.add_row(name, repr(value), description)
    console.print(table)
    return 0


def show_trace(options: argparse.Namespace, console: Console) -> int:
    """Print the path of a sample, or the origin of a final tar."""
    settings = load_settings(options.settings)
    if options.tar is not None:
        return _show_tar(trace_tar(options.tar, settings), console)
    # recorded shards, not those below the raw root: outputs of a removed raw shard are still there
    stages = stage_dag(settings)
    keys = [options.shard] if options.shard else sorted(recorded_stages(settings.storage, stages))
    found, unread = False, 0
    for key, traces in find_sample(options.sample_id, keys, settings.storage, stages):
        if isinstance(traces, InterleavedError):
            unread += 1
            _print_error(f"interleaved: shard {key} was skipped: {traces}")
            continue
        found = True
        source = traces[0].record.source
        console.print(f"{options.sample_id} in shard {key}{f', {source.uri}' if source else ''}")
        rows_before = 0
        for trace in traces:
            if trace.kept is not None or trace.dropped.num_rows:
                console.print(_trace_table(trace))
            if trace.kept is None:
                console.print(_in_tar(trace, options.sample_id, rows_before - trace.dropped.num_rows))
            else:
                rows_before = trace.kept.num_rows
    if not found:
        skipped = f", {unread} of them skipped" if unread else ""
        _print_error(f"no sample {_short(options.sample_id)} in {len(keys)} shards{skipped}")
    return 2 if unread else 0 if found else 1


def _show_tar(trace: TarTrace, console: Console) -> int:
    """Print the origin of a tar; returns 2 where its bytes differ from those that were written."""
    facts = [("tar", trace.uri), ("shard", trace.key), ("sha256", trace.sha256)]
    if trace.source is not None:
        facts.append(("raw shard", f"{trace.source.uri}  {trace.source.size:,} bytes  {trace.source.version}"))
    _print_facts([*facts, ("status", trace.status)], console)
    for name, record in trace.records.items():
        console.print()
        console.print(name)
        again = "  made again since: not the version in this tar" if name in trace.remade else ""
        lines = [("version", f"{record.data_version}{again}"), ("code", record.code_version)]
        lines += [(f"from {source}", version) for source, version in record.inputs.items()]
        lines += [
            (role, f"{output.uri}  {output.size:,} bytes  sha256:{output.sha256}")
            for role, output in record.outputs.items()
        ]
        lines.append(("settings", json.dumps(record.settings, ensure_ascii=False, sort_keys=True)))
        _print_facts(lines, console)
    if not trace.as_recorded:
        _print_error(
            f"interleaved: {trace.uri} differs from what was written: its record has {trace.recorded.size:,} bytes, "
            f"sha256 {trace.recorded.sha256}. Delete it and materialize final_tars of shard {trace.key}."
        )
    return 0 if trace.as_recorded else 2


def _print_facts(lines: Sequence[tuple[str, str]], console: Console) -> None:
    """Print names and values, one a line of any length, so that URIs and hashes can be copied and searched."""
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        console.print(f"  {name:<{width}}  {value}", soft_wrap=True, highlight=False)


def _in_tar(trace: StageTrace, sample_id: str, rows: int) -> str:
    place = f"{trace.record.stage}  {trace.record.outputs['rows'].uri}: "
    if not rows:
        return f"{place}no row of it"
    return f"{place}{member_key(sample_id)}.json and its images, {rows} row{'' if rows == 1 else 's'}"


def _trace_table(trace: StageTrace) -> Table:
    record = trace.record
    table = Table(title=f"{record.stage}  {record.outputs['rows'].uri}", title_justify="left")
    for column in ("position", "modality", "outcome", "measured", "threshold", "detail"):
        table.add_column(column, overflow="fold")
    for row in [] if trace.kept is None else trace.kept.to_pylist():
        scores = ", ".join(f"{name} {value:.4g}" for name, value in row.items() if isinstance(value, float))
        table.add_row(
            str(row["position"]), row.get("modality", "image"), "kept", scores, "", row.get("score_error") or ""
        )
    for row in trace.dropped.to_pylist():
        measured, threshold = ("" if row[name] is None else f"{row[name]:.4g}" for name in ("measured", "threshold"))
        table.add_row(
            str(row["position"]), row["modality"], f"dropped: {row['reason']}", measured, threshold, row["detail"] or ""
        )
    return table


def _leaves(settings: Settings) -> Iterator[tuple[str, Any, str]]:
    for section in type(settings).model_fields:
        yield from _fields(section, getattr(settings, section))


def _fields(prefix: str, model: BaseModel) -> Iterator[tuple[str, Any, str]]:
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _fields(f"{prefix}.{name}", value)
        else:
            yield f"{prefix}.{name}", value, field.description or ""


if __name__ == "__main__":
    sys.exit(main())
