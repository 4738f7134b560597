"""``interleaved what-if``: selection on stored scores under changed settings."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import click

from interleaved_assets.cli.terminal.complete import complete_made_shards
from interleaved_assets.cli.terminal.options import as_json

if TYPE_CHECKING:
    from interleaved_assets.model.errors import InterleavedError
    from interleaved_assets.selection.other_bounds import Outcome

SECTION: Final = "The shards of a project"
SHARDS_AT_A_TIME: Final = 8
"""Number of shards read at once; each takes up to ``run.max_batch_bytes`` for its texts."""
_NUMBERS: Final = ("now", "then", "difference")
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
    help="Partition key; default: every scored shard.",
    shell_complete=complete_made_shards,
)
@as_json
@click.pass_obj
def what_if_command(file: str | None, *, changes: Sequence[str], shards: Sequence[str], as_json: bool) -> int:
    """Show what other thresholds would keep, from stored scores.

    No image is read, and no file is written.

    NAME is a setting of [selection]; own.brightness.max is a bound of your own filter brightness.

    \b
    interleaved what-if min_sharpness_256=80
    interleaved what-if min_clip=0.2 max_qr_area_ratio=0.1
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
    from interleaved_assets.selection.other_bounds import Outcome, changed_settings, what_if
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

    def outcomes(key: str) -> "tuple[Outcome, Outcome] | InterleavedError":
        try:
            paths, most_bytes = settings.storage.shard(key), settings.run.max_batch_bytes
            rows, scores, documents = deciding_tables(paths, filtered, fields, most_bytes)
            now = what_if(rows, scores, settings.selection, documents=documents)
            return now, what_if(rows, scores, settings.selection, overrides, documents=documents)
        except InterleavedError as error:
            return error

    now, then, answered, errors = Outcome(), Outcome(), 0, Counter[str]()
    with progress("reading scores of shards", len(keys), out, as_json=as_json, lines=True) as advance:
        for key, outcome in zip(keys, parallel_map(outcomes, keys, threads=SHARDS_AT_A_TIME), strict=True):
            advance()
            if isinstance(outcome, InterleavedError):
                errors[str(outcome)] += 1
                if errors[str(outcome)] == 1:
                    print_error(f"interleaved: shard {key} was left out: {outcome}")
                continue
            now, then, answered = now + outcome[0], then + outcome[1], answered + 1
    for message, count in errors.items():
        if count > 1:
            print_error(f"interleaved: {count} shards in all were left out with the message: {message}")
    if answered and as_json:
        print_json({"shards": answered, "now": asdict(now), "then": asdict(then)})
    elif answered:
        title = f"{', '.join(changes)}: {_shards(answered, len(keys))}"
        out.print_table(("", *_NUMBERS), _lines(now, then), title=title, right=_NUMBERS)
        out.print(_MEANING)
    return 2 if errors else 0


def _shards(answered: int, asked: int) -> str:
    return f"{asked} shards" if answered == asked else f"{answered} of {asked} shards"


def _lines(now: "Outcome", then: "Outcome") -> Iterator[tuple[str, ...]]:
    lines = [(name, getattr(now, name), getattr(then, name)) for name in ("samples_kept", "images_kept", "rows_kept")]
    reasons = sorted({*now.dropped, *then.dropped})
    lines += [(f"dropped: {name}", now.dropped.get(name, 0), then.dropped.get(name, 0)) for name in reasons]
    return ((name, f"{before:,}", f"{after:,}", f"{after - before:+,}") for name, before, after in lines)
