"""``interleaved what-if``: selection on stored scores under changed settings."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice, zip_longest
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from interleaved_assets.cli.terminal.complete import complete_made_shards
from interleaved_assets.cli.terminal.options import as_json

if TYPE_CHECKING:
    from interleaved_assets.selection.other_bounds import Outcome
    from interleaved_assets.settings import Settings

SECTION: Final = "The shards of a project"
SHARDS_AT_A_TIME: Final = 8
"""Number of shards read at once; each takes up to ``run.max_batch_bytes`` for its texts."""
_NUMBERS: Final = ("now", "then", "difference")
_EXAMPLE_COLUMNS: Final = (
    *("shard", "sample", "position", "modality"),
    *("then", "reason", "measured", "threshold", "content"),
)
_MEANING: Final = (
    "now: the settings in force, applied to the stored scores. Filtered shards that were made under other settings "
    "differ from it until they are made again."
)


@click.command("what-if")
@click.argument("changes", nargs=-1, required=True, metavar="NAME=VALUE…")
@click.option(
    "--shard",
    "shards",
    metavar="KEY",
    multiple=True,
    help="Key of a shard; may be repeated. Default: every scored shard.",
    shell_complete=complete_made_shards,
)
@click.option(
    "--examples",
    metavar="N",
    type=click.IntRange(min=1),
    help="Also list N of the rows that would be kept or dropped instead, of each shard in turn.",
)
@as_json
@click.pass_obj
def what_if_command(
    file: str | None, *, changes: Sequence[str], shards: Sequence[str], examples: int | None, as_json: bool
) -> int:
    """Show what other thresholds would keep, from stored scores.

    No image is read, and no file is written.

    NAME is a setting of [selection]; own.brightness.max is a bound of your own filter brightness.

    \b
    interleaved what-if min_sharpness_256=80
    interleaved what-if min_clip=0.2 max_qr_area_ratio=0.1 --examples 20
    """
    from dataclasses import asdict

    from interleaved_assets.cli.commands.drops import line_of
    from interleaved_assets.cli.terminal.console import console, print_error, print_json, progress
    from interleaved_assets.cli.terminal.name_value import names_and_values
    from interleaved_assets.cli.terminal.shard_keys import stored_keys_problem
    from interleaved_assets.model.errors import InterleavedError
    from interleaved_assets.pipeline.run.stored_records import recorded_keys
    from interleaved_assets.pipeline.run.threads import found_or_error
    from interleaved_assets.pipeline.stages.names import IMAGE_SCORES
    from interleaved_assets.reporting.wording.text import counted
    from interleaved_assets.selection.other_bounds import Outcome, changed_settings
    from interleaved_assets.settings import load_settings

    settings, out = load_settings(file), console()
    overrides = names_and_values(changes)
    changed_settings(settings.selection, overrides)  # so that a wrong value is refused before a shard is read
    if problem := stored_keys_problem(shards, settings.storage):
        print_error(f"interleaved: {problem}")
        return 1
    keys = list(dict.fromkeys(shards)) or sorted(recorded_keys(settings.storage, IMAGE_SCORES))
    if not keys:
        print_error(
            "interleaved: no shard has been scored yet: interleaved run, or materialize image_scores in Dagster"
        )
        return 1
    answers: list[_Answer] = []
    now, then, errors = Outcome(), Outcome(), Counter[str]()
    answer = partial(_answer, settings=settings, overrides=overrides, most=examples)
    with progress("reading scores of shards", len(keys), out, as_json=as_json, lines=True) as advance:
        for key, outcome in found_or_error(answer, keys, threads=SHARDS_AT_A_TIME):
            advance()
            if isinstance(outcome, InterleavedError):
                text = str(outcome).removeprefix(f"shard {key}: ")
                # the same message of thousands of shards may name the file of each
                message = text.replace(f"/{key}.", "/KEY.")
                errors[message] += 1
                if errors[message] == 1:
                    print_error(f"interleaved: shard {key} was left out: {text}")
                continue
            now, then = now + outcome.now, then + outcome.then
            answers.append(outcome)
    for message, count in errors.items():
        if count > 1:
            print_error(f"interleaved: {count} shards in all were left out with the message: {message}")
    found = None if examples is None else _with_contents(_in_turn(answers, examples), settings, errors)
    if answers and as_json:
        listed = {} if found is None else {"examples": found}
        print_json({"shards": len(answers), "now": asdict(now), "then": asdict(then), **listed})
    elif answers:
        left_out = "" if len(answers) == len(keys) else f"{len(answers)} of "
        title = f"{', '.join(changes)}: {left_out}{counted(len(keys), 'shard')}"
        out.print_table(("", *_NUMBERS), _lines(now, then), title=title, right=_NUMBERS)
        out.print(_MEANING)
        if found is not None:
            differ = sum(one.differ for one in answers)
            shown = f"{len(found):,} of " if len(found) < differ else ""
            title = f"{shown}{counted(differ, 'row')} decided differently"
            lines = ((row["shard"], *line_of(row, row["then"])) for row in found)
            out.print_table(_EXAMPLE_COLUMNS, lines, title=title)
    return 2 if errors else 0


class _Answer(NamedTuple):
    """The outcomes of both selections for one shard."""

    now: "Outcome"
    then: "Outcome"
    differ: int = 0
    """Number of rows that are decided on differently; 0 without examples."""
    examples: Sequence[list[dict[str, Any]]] = ()
    """The first of these rows, without contents: those that would be dropped, and those that would be kept."""


def _answer(key: str, settings: "Settings", overrides: Mapping[str, object], most: int | None) -> _Answer:
    """Select from one shard twice; with ``most`` rows of each kind as examples."""
    from interleaved_assets.io.parquet.reader import open_rows
    from interleaved_assets.pipeline.stages.dag import stage_dag
    from interleaved_assets.pipeline.stages.filtered import deciding_tables
    from interleaved_assets.pipeline.stages.names import FILTERED
    from interleaved_assets.selection.other_bounds import changed_rows, changed_settings, other_selection, outcome_of

    selection, filtered = settings.selection, stage_dag(settings)[FILTERED]
    fields = tuple(dict.fromkeys((*selection.fields(), *changed_settings(selection, overrides).fields())))
    paths, most_bytes = settings.storage.shard(key), settings.run.max_batch_bytes
    with open_rows(paths.output(filtered.inputs[0]), paths.options) as stored:
        rows, scores, documents = deciding_tables(stored, paths, filtered.score_inputs, fields, most_bytes)
    now = other_selection(rows, scores, selection, documents=documents)
    then = other_selection(rows, scores, selection, overrides, documents=documents)
    outcomes = outcome_of(rows, now), outcome_of(rows, then)
    if most is None:
        return _Answer(*outcomes)
    differ = changed_rows(now, then)
    examples = [
        [{"shard": key, "then": name, **row} for row in table.slice(0, most).to_pylist()]
        for name, table in (("dropped", differ.dropped), ("kept", differ.kept))
    ]
    return _Answer(*outcomes, differ.dropped.num_rows + differ.kept.num_rows, examples)


def _in_turn(answers: Sequence[_Answer], most: int) -> list[dict[str, Any]]:
    """Return ``most`` examples: of each shard in turn one that would be dropped, and one that would be kept."""
    turns = zip_longest(*(rows for answer in answers for rows in answer.examples))
    chosen = islice((row for turn in turns for row in turn if row is not None), most)
    return sorted(chosen, key=itemgetter("shard"))


def _with_contents(
    examples: Sequence[Mapping[str, Any]], settings: "Settings", errors: Counter[str]
) -> list[dict[str, Any]]:
    """Return ``examples``, which are sorted by shard, with the contents of their rows; what fails is in ``errors``."""
    from interleaved_assets.cli.terminal.console import print_error
    from interleaved_assets.model.errors import InterleavedError
    from interleaved_assets.pipeline.lineage.contents import RowKey, row_contents
    from interleaved_assets.pipeline.stages.dag import stage_dag
    from interleaved_assets.pipeline.stages.names import FILTERED

    rows_stage = stage_dag(settings)[FILTERED].inputs[0]
    found = []
    for key, rows in groupby(examples, key=itemgetter("shard")):
        paths, of_shard = settings.storage.shard(key), list(rows)
        keys = [RowKey(*(row[name] for name in RowKey._fields)) for row in of_shard]
        contents: Mapping[RowKey, str] = {}
        try:
            contents = row_contents(keys, paths.output(rows_stage), paths)
        except InterleavedError as error:
            errors[str(error)] += 1
            print_error(f"interleaved: contents of shard {key} were left out: {error}")
        found += [
            {
                "shard": key,
                **row_key._asdict(),
                **{name: row[name] for name in ("then", "reason", "measured", "threshold")},
                "content": contents.get(row_key),
            }
            for row_key, row in zip(keys, of_shard, strict=True)
        ]
    return found


def _lines(now: "Outcome", then: "Outcome") -> Iterator[tuple[str, ...]]:
    lines = [(name, getattr(now, name), getattr(then, name)) for name in ("samples_kept", "images_kept", "rows_kept")]
    reasons = sorted({*now.dropped, *then.dropped})
    lines += [(f"dropped: {name}", now.dropped.get(name, 0), then.dropped.get(name, 0)) for name in reasons]
    return ((name, f"{before:,}", f"{after:,}", f"{after - before:+,}") for name, before, after in lines)
