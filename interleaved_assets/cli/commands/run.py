"""``interleaved run``: take shards through the stages, without Dagster."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from interleaved_assets.cli.terminal.complete import complete_raw_shards
from interleaved_assets.cli.terminal.options import as_json_lines, jobs

if TYPE_CHECKING:
    from interleaved_assets.pipeline.run.many import ShardOutcome
    from interleaved_assets.pipeline.status.dataset_status import DatasetStatus

SECTION: Final = "The shards of a project"


@click.command("run")
@click.argument("shards", nargs=-1, metavar="[KEY…]", shell_complete=complete_raw_shards)
@jobs
@as_json_lines
@click.pass_obj
def run_command(file: str | None, *, shards: Sequence[str], jobs: int | None, as_json: bool) -> int:
    """Take shards through all stages, without Dagster.

    Outputs and records are the same as those of a run in Dagster, which finds them current.

    KEY is the path of a raw shard below storage.raw_root; that of a tar has no ending. Without a KEY, the command takes
    all shards that are not current. A shard that fails does not stop the others.

    \b
    interleaved run
    interleaved run 2024/part-0003 2024/part-0004 --jobs 4
    """
    from interleaved_assets.cli.commands.status import print_passed_over
    from interleaved_assets.cli.terminal.console import console, print_error, print_json, progress
    from interleaved_assets.cli.terminal.shard_keys import raw_keys_problem
    from interleaved_assets.io.storage import join
    from interleaved_assets.model.errors import OptionError, describe
    from interleaved_assets.pipeline.run.many import run_shards
    from interleaved_assets.pipeline.run.record import Counts
    from interleaved_assets.pipeline.stages.dag import stage_dag
    from interleaved_assets.pipeline.stages.names import FINAL_TARS, NORMALIZED
    from interleaved_assets.pipeline.status.dataset_status import read_dataset_status
    from interleaved_assets.reporting.figures.facts import tallies
    from interleaved_assets.reporting.shard.stored_pictures import draw_pictures
    from interleaved_assets.reporting.wording.text import counted
    from interleaved_assets.settings import load_settings

    settings, out = load_settings(file), console()
    chosen = list(dict.fromkeys(shards))
    if problem := raw_keys_problem(chosen, settings.storage):
        raise OptionError(problem)
    dataset: DatasetStatus | None = None
    if not chosen:
        dataset = read_dataset_status(settings)
        chosen = _due(dataset)
        if not chosen:
            if as_json:
                print_json({"made": 0, "current": len(dataset.raws or ()), "failed": 0})
            else:
                out.print_line(_nothing_to_make(dataset))
            print_passed_over(dataset, as_json=as_json)
            return 2 if dataset.problem else 0
    stages = stage_dag(settings)
    for stage in stages.values():
        stage.prepare(settings)
    counts: dict[str, Counter[str]] = {name: Counter() for name in stages}
    failed = undrawn = 0
    read, kept = dict[str, Counts](), dict[str, Counts]()
    with progress("stages of shards", len(chosen) * len(stages), out, as_json=as_json) as advance:
        draw = partial(draw_pictures, settings=settings)
        for one in run_shards(chosen, stages.values(), settings, then=draw, jobs=jobs):
            advance()
            failed += isinstance(one.result, Exception)
            counts[one.stage][_outcome(one)] += 1
            if as_json:
                _print_as_json(one)
            if not isinstance(one.result, Exception):
                if one.stage == NORMALIZED:
                    read[one.key] = one.result.record.counts_in
                elif one.stage == FINAL_TARS:
                    kept[one.key] = one.result.record.counts_out
                if isinstance(one.result.shown, str):
                    undrawn += 1
                    error = f"pictures and page could not be written: {one.result.shown}"
                    print_error(f"interleaved: {one.stage}: shard {one.key}: {error}")
                if not as_json and not out.is_terminal:
                    out.print_line(f"{one.stage}: {one.key}: {_outcome(one)}")
            else:
                text = describe(one.result)
                place = "" if f"shard {one.key}" in text else f"shard {one.key}: "
                print_error(f"interleaved: {one.stage}: {place}{text}")
    code = 2 if failed or undrawn or (dataset is not None and dataset.problem) else 0
    if as_json:
        if dataset is not None:
            print_passed_over(dataset, as_json=True)
        return code
    outcomes = ("made", "current", "failed")
    lines = ((name, *(f"{found[outcome]:,}" for outcome in outcomes)) for name, found in counts.items())
    out.print_table(("stage", *outcomes), lines)
    out.print(f"{counted(len(chosen), 'shard')}: {len(chosen) - failed:,} current, {failed:,} failed")
    if failed < len(chosen):
        tars = join(settings.storage.output_root, "tars")
        published = tallies(sum((read[key] for key in kept), Counts()), sum(kept.values(), Counts()))
        out.print_line(f"kept {', '.join(tally.text for tally in published)}; final tars: {tars}")
    if dataset is not None:
        print_passed_over(dataset, as_json=False)
    return code


def _nothing_to_make(dataset: "DatasetStatus") -> str:
    from interleaved_assets.cli.commands.status import no_shards
    from interleaved_assets.reporting.wording.text import counted

    if not dataset.raws:
        return no_shards(dataset.storage.raw_root)
    return f"nothing to make: {counted(len(dataset.raws), 'shard')}, all current"


def _due(dataset: "DatasetStatus") -> list[str]:
    """Return the keys of the shards that are not current, and have a raw shard."""
    from interleaved_assets.cli.terminal.console import print_error
    from interleaved_assets.model.errors import StorageError
    from interleaved_assets.pipeline.status.status import State

    if dataset.raws is None:
        raise StorageError(dataset.problem)
    if dataset.problem:
        print_error(f"interleaved: shards in a folder are not seen: {dataset.problem}")
    there = (shard for shard in dataset.shards() if not dataset.has_vanished(shard.key))
    return [shard.key for shard in there if shard.status.state is not State.COMPLETE]


def _outcome(one: "ShardOutcome") -> str:
    if isinstance(one.result, Exception):
        return "failed"
    return "current" if one.result.unchanged else "made"


def _print_as_json(one: "ShardOutcome") -> None:
    from interleaved_assets.cli.terminal.console import print_json
    from interleaved_assets.model.errors import describe

    if isinstance(one.result, Exception):
        print_json({"shard": one.key, "stage": one.stage, "outcome": "failed", "error": describe(one.result)})
        return
    record = one.result.record
    print_json(
        {
            "shard": one.key,
            "stage": one.stage,
            "outcome": _outcome(one),
            "seconds": round(one.result.seconds, 3),
            "outputs": {role: output.uri for role, output in record.outputs.items()},
            "counts_in": record.counts_in.model_dump(),
            "counts_out": record.counts_out.model_dump(),
            "errors": record.errors,
            "dropped": record.dropped,
        }
    )
