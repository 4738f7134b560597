"""One step over the shards of a run: each of them recorded on its own, good ones kept whatever happens to the others.

Dagster's own way to end a step over a range of partitions stamps one data version on all of them, the failed ones
included, and stores check results without a partition. So events are logged per shard here, and the step's own output
is told to record nothing more. What a run costs that way, and which other ways were tried, stands in
``docs/dagster.md``.
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

# One of two private names this project leans on: an output with this key records no materialization of its own. Dagster
# uses it for observable source assets. The pinned release and test_shard_run.py hold it in place.
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION

from interleaved_assets.defs.connections import keep_connections
from interleaved_assets.defs.latest import event_type, latest_ids
from interleaved_assets.defs.metadata import version_tags
from interleaved_assets.defs.pictures import Draw, shard_pictures
from interleaved_assets.defs.shard_events import (
    FirstFailure,
    Recorded,
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
from interleaved_assets.pipeline.execute import Stage, StageOutcome, take_through, take_together
from interleaved_assets.pipeline.stages.dag import is_last_of, stage_dag
from interleaved_assets.settings import Settings

_LONGEST_PAUSE: Final = 30.0


class Done(NamedTuple):
    """A shard that went through, with what there is to see of it."""

    outcome: StageOutcome
    pictures: Mapping[str, dg.MetadataValue]
    undrawn: Exception | None = None
    """Why there are no pictures, where they failed."""

    @classmethod
    def of(cls, outcome: StageOutcome, draw: Draw | None, settings: Settings) -> "Done":
        """A shard with its pictures; one whose pictures fail went through all the same."""
        if draw is None:
            return cls(outcome, {})
        try:
            return cls(outcome, shard_pictures(outcome.record, settings, draw))
        except Exception as error:  # noqa: BLE001  whatever it is, it is about pictures of this shard; it is told there
            return cls(outcome, {"pictures": dg.MetadataValue.text(f"could not be drawn: {describe(error)}")}, error)


def run_over_shards(
    context: dg.AssetExecutionContext,
    stage: Stage,
    checks: Sequence[ShardCheck],
    draw: Draw | None,
    settings: Settings,
) -> Iterator[dg.Output[None]]:
    """Take every shard of this run through ``stage``, ``run.parallel_shards`` of them at a time.

    Raises:
        dg.Failure: shards failed, and no asset downstream of this one is part of the run: then the run ends here as
            failed, with the good shards recorded. Where there is one, the run goes on with the good shards, and the
            last asset has the last word.
    """
    keep_connections(context.instance)
    failed: dict[str, BaseException] = {}
    recorded: dict[str, Recorded] = {}
    input_events = _input_events(context, stage)
    stopped = _stopped_upstream(context, stage, settings)
    for key, first in stopped.items():
        failed[key] = ShardError(f"shard {key}: {stage.name} was not tried, since {first.stage} failed: {first.error}")
        record_failure(context, stage, checks, key, failed[key], input_events[key], first)
    keys = [key for key in context.partition_keys if key not in stopped]
    code_version = context.assets_def.code_versions_by_key[context.asset_key] or ""
    # filling a device takes all shards in one go; other work goes shard by shard, some of them at a time
    worked = _together if stage.together else _one_by_one
    for key, done in worked(stage, keys, draw, settings):
        if isinstance(done, Done):
            if done.undrawn:
                log_error(context, f"{stage.name}, shard {key}: pictures could not be drawn", done.undrawn)
            tags = version_tags(done.outcome.record, code_version, input_events[key])
            try:
                recorded[key] = record_success(context, checks, key, done.outcome, done.pictures, tags, settings)
            except Exception as error:  # noqa: BLE001  whatever it is, it is about this shard, and the others go on
                done = error
        if not isinstance(done, Done):
            failed[key] = done
            record_failure(context, stage, checks, key, done, input_events[key])
    if recorded and any(check.compares for check in checks):
        try:
            record_comparisons(context, stage, checks, recorded, settings)
        except Exception as error:
            # the shards stand, compared or not
            context.log.error(f"{stage.name}: shards could not be compared: {describe(error)}", exc_info=error)
    if failed and not _continues_downstream(context, stage, settings):
        raise dg.Failure(
            description=_summary(stage, failed, len(context.partition_keys)),
            metadata={key: dg.MetadataValue.text(describe(error)) for key, error in sorted(failed.items())},
            allow_retries=False,
        )
    for name in sorted(context.op_execution_context.selected_output_names):
        yield dg.Output(None, output_name=name, metadata={SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True})


def _stopped_upstream(context: dg.AssetExecutionContext, stage: Stage, settings: Settings) -> dict[str, FirstFailure]:
    """Shards that an earlier step did not bring through, with what stopped each of them.

    Their old outputs may still be there; to go on from those would call a failed shard current. The earlier step may be
    one of the run that this one repeats in part ("Retry from failure"): then a shard is stopped that failed there and
    was not made since.
    """
    executed = _executed(context, settings)
    stopped: dict[str, FirstFailure] = {}
    for name in stage.inputs:
        if name in executed:
            through = context.instance.get_asset_partitions_for_run(
                context.run.run_id, dg.DagsterEventType.ASSET_MATERIALIZATION
            ).get(dg.AssetKey(name), set())
            lost = [key for key in context.partition_keys if key not in through]
            told = standing_failures(context.instance, name, lost)
            stopped |= {
                key: told[key].first
                if key in told and told[key].run_id == context.run.run_id
                # a step that ended before it came to a shard has told nothing of it
                else FirstFailure(name, "it did not come to this shard")
                for key in lost
            }
        elif context.run.parent_run_id and name in stage_dag(settings):
            told = standing_failures(context.instance, name, context.partition_keys)
            stopped |= {key: failure.first for key, failure in told.items()}
    return stopped


def _executed(context: dg.AssetExecutionContext, settings: Settings) -> set[str]:
    """Names of the stages that this run executes; no selection means every asset of the job.

    A run that repeats another in part keeps the selection of that one, and executes some of its steps, which have the
    names of the stages.
    """
    selection, steps = context.run.asset_selection, context.run.step_keys_to_execute
    selected = set(stage_dag(settings)) if selection is None else {key.path[-1] for key in selection}
    return selected if steps is None else selected & set(steps)


def _input_events(context: dg.AssetExecutionContext, stage: Stage) -> dict[str, dict[str, int]]:
    """For each shard the id of the latest event of each input that has one: one cheap question per input."""
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

    # a run that is terminated ends with the shards under way, not with all that were waiting
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
    """Seconds to wait behind the attempt of that number, from 1 on: by chance, and ever longer on average.

    Only a storage that did not answer is worth another try; whatever else is wrong would be wrong again.
    """
    return random.uniform(0, min(_LONGEST_PAUSE, 2 ** (attempt - 1)))


def _continues_downstream(context: dg.AssetExecutionContext, stage: Stage, settings: Settings) -> bool:
    return not is_last_of(stage.name, _executed(context, settings), stage_dag(settings))


def _summary(stage: Stage, failed: dict[str, BaseException], total: int) -> str:
    lines = [f"{key}: {describe(error)}" for key, error in sorted(failed.items())]
    shown = "\n".join(lines[:10]) + (f"\n… and {len(lines) - 10} more" if len(lines) > 10 else "")
    return f"{stage.name}: {len(failed)} of {total} shards failed, the others are materialized.\n{shown}"
