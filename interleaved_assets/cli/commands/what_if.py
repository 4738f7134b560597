"""``interleaved what-if``: selection on stored scores under changed settings."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from interleaved_assets.cli.terminal.complete import complete_made_shards
from interleaved_assets.cli.terminal.options import as_json

if TYPE_CHECKING:
    from interleaved_assets.model.errors import InterleavedError
    from interleaved_assets.selection.other_bounds import ChangedRows, Outcome
    from interleaved_assets.settings.shard_paths import ShardPaths

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
    help="Also list the first N rows that would be kept or dropped instead.",
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

    from interleaved_assets.cli.terminal.console import console, print_error, print_json, progress
    from interleaved_assets.cli.terminal.name_value import names_and_values
    from interleaved_assets.cli.terminal.shard_keys import stored_keys_problem
    from interleaved_assets.model.errors import InterleavedError, OptionError
    from interleaved_assets.pipeline.run.threads import parallel_map
    from interleaved_assets.pipeline.stages.dag import stage_dag
    from interleaved_assets.pipeline.stages.filtered import deciding_tables
    from interleaved_assets.pipeline.stages.names import FILTERED
    from interleaved_assets.pipeline.stages.outputs import scored_keys
    from interleaved_assets.reporting.wording.text import counted
    from interleaved_assets.selection.other_bounds import Outcome, changed_rows, changed_settings, what_if
    from interleaved_assets.settings import load_settings

    settings, out = load_settings(file), console()
    overrides = names_and_values(changes)
    changed = changed_settings(settings.selection, overrides)
    if problem := stored_keys_problem(shards, settings.storage):
        raise OptionError(problem)
    keys = shards or scored_keys(settings.storage)
    if not keys:
        print_error("no shard has been scored yet: interleaved run, or materialize image_scores in Dagster")
        return 1
    filtered = stage_dag(settings)[FILTERED]
    fields = tuple(dict.fromkeys((*settings.selection.fields(), *changed.fields())))

    def outcomes(key: str) -> "tuple[Outcome, Outcome, list[dict[str, Any]]] | InterleavedError":
        try:
            paths, most_bytes = settings.storage.shard(key), settings.run.max_batch_bytes
            rows, scores, documents = deciding_tables(paths, filtered, fields, most_bytes)
            now = what_if(rows, scores, settings.selection, documents=documents)
            then = what_if(rows, scores, settings.selection, overrides, documents=documents)
            if examples is None:
                return now, then, []
            differ = changed_rows(rows, scores, settings.selection, changed, documents=documents)
            return now, then, _examples(differ, filtered.inputs[0], paths, examples)
        except InterleavedError as error:
            return error

    now, then, answered, errors = Outcome(), Outcome(), 0, Counter[str]()
    found: list[dict[str, Any]] = []
    with progress("reading scores of shards", len(keys), out, as_json=as_json, lines=True) as advance:
        for key, outcome in zip(keys, parallel_map(outcomes, keys, threads=SHARDS_AT_A_TIME), strict=True):
            advance()
            if isinstance(outcome, InterleavedError):
                errors[str(outcome)] += 1
                if errors[str(outcome)] == 1:
                    print_error(f"interleaved: shard {key} was left out: {outcome}")
                continue
            now, then, answered = now + outcome[0], then + outcome[1], answered + 1
            found += outcome[2][: (examples or 0) - len(found)]
    for message, count in errors.items():
        if count > 1:
            print_error(f"interleaved: {count} shards in all were left out with the message: {message}")
    if answered and as_json:
        listed = {} if examples is None else {"examples": found}
        print_json({"shards": answered, "now": asdict(now), "then": asdict(then), **listed})
    elif answered:
        title = f"{', '.join(changes)}: {_shards(answered, len(keys))}"
        out.print_table(("", *_NUMBERS), _lines(now, then), title=title, right=_NUMBERS)
        out.print(_MEANING)
        if examples is not None:
            title = f"{counted(len(found), 'row')} decided differently"
            out.print_table(_EXAMPLE_COLUMNS, map(_example_line, found), title=title)
    return 2 if errors else 0


def _examples(differ: "ChangedRows", rows_stage: str, paths: "ShardPaths", most: int) -> list[dict[str, Any]]:
    """Return the first rows that are decided on differently, with their contents."""
    from interleaved_assets.pipeline.lineage.contents import row_contents, row_keys

    ledger = {"dropped": differ.dropped.slice(0, most), "kept": differ.kept.slice(0, most)}
    keys = {then: row_keys(table) for then, table in ledger.items()}
    contents = row_contents([key for some in keys.values() for key in some], paths.output(rows_stage), paths)
    return [
        {
            "shard": paths.key,
            **key._asdict(),
            "then": then,
            "reason": row["reason"],
            "measured": row["measured"],
            "threshold": row["threshold"],
            "content": contents.get(key),
        }
        for then, table in ledger.items()
        for key, row in zip(keys[then], table.to_pylist(), strict=True)
    ][:most]


def _example_line(row: dict[str, Any]) -> tuple[str, ...]:
    from interleaved_assets.cli.commands.drops import LONGEST_CONTENT
    from interleaved_assets.model.shown import cut_text

    measured, threshold = ("" if row[name] is None else f"{row[name]:.4g}" for name in ("measured", "threshold"))
    place = (row["shard"], row["sample_id"], str(row["position"]), row["modality"])
    return (*place, row["then"], row["reason"], measured, threshold, cut_text(row["content"] or "", LONGEST_CONTENT))


def _shards(answered: int, asked: int) -> str:
    return f"{asked} shards" if answered == asked else f"{answered} of {asked} shards"


def _lines(now: "Outcome", then: "Outcome") -> Iterator[tuple[str, ...]]:
    lines = [(name, getattr(now, name), getattr(then, name)) for name in ("samples_kept", "images_kept", "rows_kept")]
    reasons = sorted({*now.dropped, *then.dropped})
    lines += [(f"dropped: {name}", now.dropped.get(name, 0), then.dropped.get(name, 0)) for name in reasons]
    return ((name, f"{before:,}", f"{after:,}", f"{after - before:+,}") for name, before, after in lines)
