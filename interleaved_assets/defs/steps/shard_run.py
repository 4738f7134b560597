"""One step over the shards of a run: each shard is recorded on its own, and a failed shard does not stop the others.

A step over a range of partitions that ends the usual way records one data version for all of them, failed ones
included, and stores check results without a partition. Therefore events are logged per shard here, and the output of
the step is marked so that Dagster records nothing for it. ``docs/dagster.md`` has the cost of a run and the
alternatives that were tried.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

import dagster as dg

from interleaved_assets.defs.executors import task_needs
from interleaved_assets.defs.interrupts import interrupts_deferred
from interleaved_assets.defs.latest import event_type, latest_ids, materialized_in_run, some_at_a_time
from interleaved_assets.defs.metadata import version_tags
from interleaved_assets.defs.private_api.instance import RECORDS_NOTHING, events_together, keep_connections
from interleaved_assets.defs.steps.failures import FirstFailure, standing_failures
from interleaved_assets.defs.steps.pictures import shard_pictures
from interleaved_assets.defs.steps.shard_events import (
    TOGETHER,
    LoggedShard,
    Success,
    log_error,
    record_comparisons,
    record_failure,
    record_successes,
)
from interleaved_assets.model.errors import ShardError, StorageError, describe
from interleaved_assets.pipeline.checks.verdict import ShardCheck
from interleaved_assets.pipeline.execute import list_compared
from interleaved_assets.pipeline.failures import FailureLog
from interleaved_assets.pipeline.many import take_patiently, take_together_patiently
from interleaved_assets.pipeline.pools.arrival import Arrival
from interleaved_assets.pipeline.pools.cluster import on_cluster, sendable
from interleaved_assets.pipeline.pools.threads import on_threads
from interleaved_assets.pipeline.stage import Stage, StageOutcome
from interleaved_assets.pipeline.stages.dag import is_last_of, stage_dag
from interleaved_assets.pipeline.stored_records import ListedRecords
from interleaved_assets.pipeline.throughput import ENOUGH, Progress, write_throughput
from interleaved_assets.settings import Settings

BACKFILL: Final = "dagster/backfill"
"""Tag of Dagster on the runs of a backfill."""
BEFORE_FAILURE_S: Final = 3.0
"""Seconds between the last events of a run and its failure. A tick of Dagster's daemon of backfills first looks for new
materializations, and some tenths of a second later for runs that failed: what is materialized in between counts as
failed for ever."""
FIRST_PATIENCE_S: Final = 0.3
PATIENCE_S: Final = 5.0
"""Seconds that a shard may wait for others to be logged with it, since many take PostgreSQL as long as one. Each block
of a step waits twice as long as the one before."""


class Done(NamedTuple):
    """A shard that was taken through the stage, with its pictures."""

    outcome: StageOutcome
    pictures: Mapping[str, dg.MetadataValue]
    undrawn: BaseException | None = None
    """The error where pictures could not be drawn."""

    @classmethod
    def of(cls, outcome: StageOutcome, settings: Settings) -> "Done":
        """A shard with its pictures. An error while drawing does not fail the shard."""
        try:
            return cls(outcome, shard_pictures(outcome.record, settings))
        except Exception as error:  # noqa: BLE001  any error is about pictures of this shard, and is shown there
            return cls(outcome, {"pictures": dg.MetadataValue.text(f"could not be drawn: {describe(error)}")}, error)


@contextmanager
def failing_after_its_events(context: dg.AssetExecutionContext) -> Iterator[None]:
    """A block that, in a run of a backfill, fails ``BEFORE_FAILURE_S`` later."""
    try:
        yield
    except Exception:
        if BACKFILL in context.run.tags:
            time.sleep(BEFORE_FAILURE_S)
        raise


def run_over_shards(
    context: dg.AssetExecutionContext,
    stage: Stage,
    checks: Sequence[ShardCheck],
    settings: Settings,
    code_version: str,
) -> Iterator[dg.Output[None]]:
    """Take every shard of this run through ``stage``, on threads or on the Ray cluster, and log its progress.

    Raises:
        dg.Failure: shards failed, and no asset downstream of this one is part of the run: the run ends as failed, with
            the good shards recorded. Otherwise the run continues with the good shards, and its last asset fails.
    """
    failed: dict[str, BaseException] = {}
    recorded: dict[str, LoggedShard] = {}
    with interrupts_deferred():
        keep_connections(context.instance)
        all_keys = list(context.partition_keys)
        input_events = _input_events(context, stage, all_keys)
        stopped = _stopped_upstream(context, stage, all_keys, settings)
    for some in some_at_a_time(list(stopped.items()), TOGETHER):
        with interrupts_deferred(), events_together(context.instance):
            for key, first in some:
                failed[key] = ShardError(
                    f"shard {key}: {stage.name} was skipped because {first.stage} failed: {first.error}"
                )
                record_failure(context, stage, checks, key, failed[key], input_events[key], first)
    keys = [key for key in all_keys if key not in stopped]
    failures = FailureLog(stage.name, settings.storage)
    progress = Progress(stage.name, len(keys), context.log.info)

    def fail(key: str, error: BaseException) -> None:
        failed[key] = error
        failures.failed(key, error)
        with events_together(context.instance):
            record_failure(context, stage, checks, key, error, input_events[key])

    def log(arrivals: Sequence[Arrival[Done]]) -> None:
        made: list[Success] = []
        lost: dict[str, BaseException] = {}
        for arrival in arrivals:
            key, done = arrival.key, arrival.result
            if not isinstance(done, Done):
                lost[key] = done
                continue
            if done.undrawn:
                log_error(context, f"{stage.name}, shard {key}: pictures could not be drawn", done.undrawn)
            shown = {**done.pictures, **_work_place(arrival)}
            tags = version_tags(done.outcome.record, code_version, input_events[key])
            try:
                made.append(Success.judged(key, done.outcome, checks, shown, tags, settings))
            except Exception as error:  # noqa: BLE001  any error concerns only this shard
                lost[key] = error
        try:
            recorded.update(record_successes(context, made))
        except Exception as error:  # noqa: BLE001  events that cannot be stored concern only their shard
            context.log.warning(
                f"{stage.name}: the events of {len(made)} shards could not be stored together, each is stored by "
                f"itself: {describe(error)}"
            )
            for shard in made:
                try:
                    recorded.update(record_successes(context, [shard]))
                except Exception as its_own:  # noqa: BLE001
                    # now: it raises where no event can be stored, which takes half a minute for each shard to find out
                    fail(shard.key, its_own)
        for key, reason in lost.items():
            fail(key, reason)
        for shard in made:
            if shard.key in recorded:
                failures.succeeded(shard.key)

    waiting: list[Arrival[Done]] = []
    since = 0.0
    # without a pool, nothing comes here until the next shard is ready
    patience = 0.0 if stage.together and settings.run.executor != "ray" else FIRST_PATIENCE_S
    try:
        for arrival in _arrivals(stage, keys, settings):
            with interrupts_deferred():
                progress.tick()
                if arrival is not None:
                    outcome = arrival.result.outcome if isinstance(arrival.result, Done) else None
                    progress.add(outcome, arrival.host, arrival.queue_seconds)
                    since = since if waiting else time.monotonic()
                    waiting.append(arrival)
                if len(waiting) == TOGETHER or (waiting and time.monotonic() - since >= patience):
                    ready = waiting.copy()
                    waiting.clear()
                    patience = min(2 * patience, PATIENCE_S)
                    log(ready)
    finally:
        with interrupts_deferred():
            log(waiting)
    with interrupts_deferred():
        whole = progress.end()
    if whole.made >= ENOUGH:
        try:
            write_throughput(whole, settings.storage)
        except StorageError as error:
            with interrupts_deferred():
                context.log.warning(f"the report lacks how fast {stage.name} went: {error}")  # its shards are made
    if recorded and any(check.compares for check in checks):
        try:
            record_comparisons(context, stage, checks, recorded, settings)
        except Exception as error:
            # the shards stay materialized without the comparison
            with interrupts_deferred():
                context.log.error(f"{stage.name}: shards could not be compared: {describe(error)}", exc_info=error)
    if failed and not _continues_downstream(context, stage, settings):
        raise dg.Failure(
            description=_summary(stage, failed, len(all_keys)),
            metadata={key: dg.MetadataValue.text(describe(error)) for key, error in sorted(failed.items())},
            allow_retries=False,
        )
    for name in sorted(context.op_execution_context.selected_output_names):
        yield dg.Output(None, output_name=name, metadata={RECORDS_NOTHING: True})


def _stopped_upstream(
    context: dg.AssetExecutionContext, stage: Stage, keys: Sequence[str], settings: Settings
) -> dict[str, FirstFailure]:
    """Shards that failed at an earlier step, with their failures.

    Their old outputs may still exist; a later stage made from those would show a failed shard as current. Where this
    run repeats another one in part ("Retry from failure"), the earlier step may be part of that run: then a shard is
    stopped that failed there and was not materialized since.
    """
    executed = _executed(context, settings)
    stopped: dict[str, FirstFailure] = {}
    for name in stage.inputs:
        if name in executed:
            made = materialized_in_run(context.instance, name, keys, context.run)
            lost = [key for key in keys if key not in made]
            failures = standing_failures(context.instance, name, lost)
            stopped |= {
                key: failures[key].first
                if key in failures and failures[key].run_id == context.run.run_id
                # a step that ended before this shard has logged no failure of it
                else FirstFailure(name, "it did not reach this shard")
                for key in lost
            }
        elif context.run.parent_run_id and name in stage_dag(settings):
            failures = standing_failures(context.instance, name, keys)
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


def _input_events(context: dg.AssetExecutionContext, stage: Stage, keys: Sequence[str]) -> dict[str, dict[str, int]]:
    """For each shard the id of the latest event of each input, where there is one; one query per input."""
    events: dict[str, dict[str, int]] = {key: {} for key in keys}
    for name in stage.inputs:
        for key, event in latest_ids(context.instance, name, event_type(name), keys).items():
            events[key][name] = event
    return events


def _arrivals(stage: Stage, keys: Sequence[str], settings: Settings) -> Iterator[Arrival[Done] | None]:
    """The shards as they become ready; None about once a second in between, but where a stage takes all together."""
    limit_s = settings.run.max_shard_seconds
    if settings.run.executor == "ray" and keys:
        return on_cluster(
            partial(_take_on_worker, stage, settings=settings),
            keys,
            stage.name,
            together=stage.together is not None,
            needs=task_needs(stage, settings.clip),
            limit_s=limit_s,
            plugins=settings.plugins,
        )
    if stage.together:
        return (Arrival(key, result) for key, result in _take_all(stage, keys, settings))
    listed = list_compared(stage, keys, settings.storage)
    take = partial(_take, stage, settings=settings, listed=listed)
    return on_threads(take, keys, stage.name, threads=settings.run.parallel_shards, limit_s=limit_s)


def _work_place(arrival: Arrival[Done]) -> dict[str, dg.MetadataValue]:
    """The node of the cluster at which a shard was made, and how long it waited for that; nothing in one process."""
    if not arrival.host:
        return {}
    waited = round(arrival.queue_seconds, 3)
    return {"queue_seconds": dg.MetadataValue.float(waited), "host": dg.MetadataValue.text(arrival.host)}


def _take(stage: Stage, key: str, settings: Settings, listed: ListedRecords | None = None) -> Done:
    return Done.of(take_patiently(stage, key, settings, listed), settings)


def _take_all(stage: Stage, keys: Sequence[str], settings: Settings) -> Iterator[tuple[str, Done | BaseException]]:
    """Each of ``keys`` with its result or its error: one after another, or together where the stage takes them so."""
    if stage.together:
        for key, outcome in take_together_patiently(stage, keys, settings):
            yield key, Done.of(outcome, settings) if isinstance(outcome, StageOutcome) else outcome
        return
    for key in keys:
        try:
            yield key, _take(stage, key, settings)
        except Exception as error:  # noqa: BLE001  any error concerns only this shard
            yield key, error


def _take_on_worker(
    stage: Stage, keys: Sequence[str], settings: Settings
) -> Iterator[tuple[str, Done | BaseException]]:
    """:func:`_take_all`, with results that can be sent: an error of a plugin's drawing may hold what cannot be."""
    for key, done in _take_all(stage, keys, settings):
        if isinstance(done, Done) and done.undrawn is not None:
            done = done._replace(undrawn=sendable(done.undrawn))
        yield key, done


def _continues_downstream(context: dg.AssetExecutionContext, stage: Stage, settings: Settings) -> bool:
    return not is_last_of(stage.name, _executed(context, settings), stage_dag(settings))


def _summary(stage: Stage, failed: dict[str, BaseException], total: int) -> str:
    alike: dict[str, list[str]] = {}
    for key, error in sorted(failed.items()):
        alike.setdefault(describe(error), []).append(key)
    lines = [
        f"{keys[0]}{f' and {len(keys) - 1} more' if len(keys) > 1 else ''}: {error}" for error, keys in alike.items()
    ]
    shown = "\n".join(lines[:10]) + (f"\n… and {len(lines) - 10} more errors" if len(lines) > 10 else "")
    return f"{stage.name}: {len(failed)} of {total} shards failed, the others are materialized.\n{shown}"
