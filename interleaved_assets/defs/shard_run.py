"""One step over the shards of a run: each shard is recorded on its own, and a failed shard does not stop the others.

A step over a range of partitions that ends the usual way records one data version for all of them, failed ones
included, and stores check results without a partition. Therefore events are logged per shard here, and the output of
the step is marked so that Dagster records nothing for it. ``docs/dagster.md`` has the cost of a run and the
alternatives that were tried.
"""

import itertools
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Final, NamedTuple

import dagster as dg
import tenacity

from interleaved_assets.defs.latest import event_type, latest_ids, materialized_in_run
from interleaved_assets.defs.metadata import version_tags
from interleaved_assets.defs.pictures import Draw, shard_pictures
from interleaved_assets.defs.private_api import RECORDS_NOTHING, keep_connections
from interleaved_assets.defs.shard_events import (
    FirstFailure,
    LoggedShard,
    describe,
    log_error,
    record_comparisons,
    record_failure,
    record_success,
    standing_failures,
)
from interleaved_assets.io.workers import Workers
from interleaved_assets.model.errors import ShardError, StorageUnavailable
from interleaved_assets.pipeline.checks import ShardCheck
from interleaved_assets.pipeline.execute import take_through, take_together
from interleaved_assets.pipeline.stage import Stage, StageOutcome
from interleaved_assets.pipeline.stages.dag import is_last_of, stage_dag
from interleaved_assets.settings import Settings

_LONGEST_PAUSE: Final = 30.0


class Done(NamedTuple):
    """A shard that was taken through the stage, with its pictures."""

    outcome: StageOutcome
    pictures: Mapping[str, dg.MetadataValue]
    undrawn: Exception | None = None
    """The error where pictures could not be drawn."""

    @classmethod
    def of(cls, outcome: StageOutcome, draw: Draw | None, settings: Settings) -> "Done":
        """A shard with its pictures. An error while drawing does not fail the shard."""
        if draw is None:
            return cls(outcome, {})
        try:
            return cls(outcome, shard_pictures(outcome.record, settings, draw))
        except Exception as error:  # noqa: BLE001  any error is about pictures of this shard, and is shown there
            return cls(outcome, {"pictures": dg.MetadataValue.text(f"could not be drawn: {describe(error)}")}, error)


def run_over_shards(
    context: dg.AssetExecutionContext,
    stage: Stage,
    checks: Sequence[ShardCheck],
    draw: Draw | None,
    settings: Settings,
    code_version: str,
) -> Iterator[dg.Output[None]]:
    """Take every shard of this run through ``stage``, ``run.parallel_shards`` of them at a time.

    Raises:
        dg.Failure: shards failed, and no asset downstream of this one is part of the run: the run ends as failed, with
            the good shards recorded. Otherwise the run continues with the good shards, and its last asset fails.
    """
    keep_connections(context.instance)
    failed: dict[str, BaseException] = {}
    recorded: dict[str, LoggedShard] = {}
    input_events = _input_events(context, stage)
    stopped = _stopped_upstream(context, stage, settings)
    for key, first in stopped.items():
        failed[key] = ShardError(f"shard {key}: {stage.name} was skipped because {first.stage} failed: {first.error}")
        record_failure(context, stage, checks, key, failed[key], input_events[key], first)
    keys = [key for key in context.partition_keys if key not in stopped]
    # a stage on a device takes all shards together; other stages take run.parallel_shards at a time
    work = _together if stage.together else _one_by_one
    for key, done in work(stage, keys, draw, settings):
        if isinstance(done, Done):
            if done.undrawn:
                log_error(context, f"{stage.name}, shard {key}: pictures could not be drawn", done.undrawn)
            tags = version_tags(done.outcome.record, code_version, input_events[key])
            try:
                recorded[key] = record_success(context, checks, key, done.outcome, done.pictures, tags, settings)
            except Exception as error:  # noqa: BLE001  any error concerns only this shard
                done = error
        if not isinstance(done, Done):
            failed[key] = done
            record_failure(context, stage, checks, key, done, input_events[key])
    if recorded and any(check.compares for check in checks):
        try:
            record_comparisons(context, stage, checks, recorded, settings)
        except Exception as error:
            # the shards stay materialized without the comparison
            context.log.error(f"{stage.name}: shards could not be compared: {describe(error)}", exc_info=error)
    if failed and not _continues_downstream(context, stage, settings):
        raise dg.Failure(
            description=_summary(stage, failed, len(context.partition_keys)),
            metadata={key: dg.MetadataValue.text(describe(error)) for key, error in sorted(failed.items())},
            allow_retries=False,
        )
    for name in sorted(context.op_execution_context.selected_output_names):
        yield dg.Output(None, output_name=name, metadata={RECORDS_NOTHING: True})


def _stopped_upstream(context: dg.AssetExecutionContext, stage: Stage, settings: Settings) -> dict[str, FirstFailure]:
    """Shards that failed at an earlier step, with their failures.

    Their old outputs may still exist; a later stage made from those would show a failed shard as current. Where this
    run repeats another one in part ("Retry from failure"), the earlier step may be part of that run: then a shard is
    stopped that failed there and was not materialized since.
    """
    executed = _executed(context, settings)
    stopped: dict[str, FirstFailure] = {}
    for name in stage.inputs:
        if name in executed:
            made = materialized_in_run(context.instance, name, context.partition_keys, context.run)
            lost = [key for key in context.partition_keys if key not in made]
            failures = standing_failures(context.instance, name, lost)
            stopped |= {
                key: failures[key].first
                if key in failures and failures[key].run_id == context.run.run_id
                # a step that ended before this shard has logged no failure of it
                else FirstFailure(name, "it did not reach this shard")
                for key in lost
            }
        elif context.run.parent_run_id and name in stage_dag(settings):
            failures = standing_failures(context.instance, name, context.partition_keys)
            stopped |= {key: failure.first for key, failure in failures.items()}
    return stopped


def _executed(context: dg.AssetExecutionContext, settings: Settings) -> set[str]:
    """Names of the stages that this run executes; no selection means every asset of the job.

    A run that repeats another one in part has the same selection but executes only some steps; steps are named after
    the stages.
    """
    selection, steps = context.run.asset_selection, context.run.step_keys_to_execute
    selected = {key.path[-1] for key in selection} if selection else set(stage_dag(settings))
    return selected if steps is None else selected & set(steps)


def _input_events(context: dg.AssetExecutionContext, stage: Stage) -> dict[str, dict[str, int]]:
    """For each shard the id of the latest event of each input, where there is one; one query per input."""
    keys = list(context.partition_keys)
    events: dict[str, dict[str, int]] = {key: {} for key in keys}
    for name in stage.inputs:
        for key, event in latest_ids(context.instance, name, event_type(name), keys).items():
            events[key][name] = event
    return events


def _one_by_one(
    stage: Stage, keys: Sequence[str], draw: Draw | None, settings: Settings
) -> Iterator[tuple[str, Done | BaseException]]:
    tries = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(StorageUnavailable),
        stop=tenacity.stop_after_attempt(settings.run.storage_tries),
        wait=lambda state: _pause(state.attempt_number),
        reraise=True,
    )

    def work(key: str) -> Done:
        return Done.of(tries.copy()(take_through, stage, key, settings), draw, settings)

    # a terminated run ends with the shards in work, without those still waiting
    with Workers(settings.run.parallel_shards, stage.name) as workers:
        done: SimpleQueue[Future[Done]] = SimpleQueue()
        futures = {workers.submit(work, key): key for key in keys}
        for future in futures:
            future.add_done_callback(done.put)
        while futures:
            future = done.get()
            yield futures.pop(future), future.exception() or future.result()


def _together(
    stage: Stage, keys: Sequence[str], draw: Draw | None, settings: Settings
) -> Iterator[tuple[str, Done | BaseException]]:
    for attempt in itertools.count(1):
        unavailable = []
        for key, outcome in take_together(stage, keys, settings):
            if isinstance(outcome, StorageUnavailable) and attempt < settings.run.storage_tries:
                unavailable.append(key)
            else:
                yield key, Done.of(outcome, draw, settings) if isinstance(outcome, StageOutcome) else outcome
        if not unavailable:
            return
        keys = unavailable
        time.sleep(_pause(attempt))


def _pause(attempt: int) -> float:
    """Seconds to wait after an attempt, numbered from 1: random, and longer on average each time.

    Only attempts at a storage that did not answer are repeated; other errors would occur again.
    """
    return random.uniform(0, min(_LONGEST_PAUSE, 2 ** (attempt - 1)))


def _continues_downstream(context: dg.AssetExecutionContext, stage: Stage, settings: Settings) -> bool:
    return not is_last_of(stage.name, _executed(context, settings), stage_dag(settings))


def _summary(stage: Stage, failed: dict[str, BaseException], total: int) -> str:
    lines = [f"{key}: {describe(error)}" for key, error in sorted(failed.items())]
    shown = "\n".join(lines[:10]) + (f"\n… and {len(lines) - 10} more" if len(lines) > 10 else "")
    return f"{stage.name}: {len(failed)} of {total} shards failed, the others are materialized.\n{shown}"
