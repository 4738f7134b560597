"""Private API of Dagster: what is asked of its instance, and what it records of a step.

The definitions import this module: SQLAlchemy, which takes 0.5 s to import, and Dagster's backfills, which take 0.1 s,
are imported where a run or a tick needs them.
"""

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData as TargetMaterialization,
)
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION
from dagster._utils.interrupts import capture_interrupts as interrupts_between_steps

if TYPE_CHECKING:
    from dagster._core.storage.event_log.base import AssetEventSummaryRecord

__all__ = [
    "RECORDS_NOTHING",
    "TargetMaterialization",
    "delete_compute_logs",
    "end_killed_run",
    "events_of_run",
    "events_together",
    "failure_of_last_run",
    "interrupts_between_steps",
    "keep_connections",
    "latest_event_ids",
    "shards_awaiting_backfill",
]

RECORDS_NOTHING: Final = SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION
"""Metadata key of an output for which Dagster records no materialization. Dagster sets it on observable source
assets."""
_STATEMENT_MS: Final = 60_000
_EXTRA_CONNECTIONS: Final = 4  # besides the pooled one, for threads

_kept: Final[WeakSet[dg.DagsterInstance]] = WeakSet()


def latest_event_ids(
    instance: dg.DagsterInstance,
    asset: dg.AssetKey,
    kind: dg.DagsterEventType,
    keys: Collection[str] | None = None,
) -> dict[str, int]:
    """The id of the last event of each partition, of ``keys`` or of all, without loading the events."""
    named = None if keys is None else set(keys)
    return dict(instance.get_latest_storage_id_by_partition(asset, kind, named))


def events_of_run(
    instance: dg.DagsterInstance,
    run_id: str,
    kind: dg.DagsterEventType,
    *,
    asset: dg.AssetKey | None = None,
    limit: int | None = None,
) -> Sequence["AssetEventSummaryRecord"]:
    """Id, time, asset and partition of the events of a run, the latest first, without loading the events."""
    return instance.get_asset_event_summary_records(
        kind,  # type: ignore[arg-type]  # one of the kinds that Dagster names
        asset,
        run_id=run_id,
        limit=limit,
    )


def failure_of_last_run(instance: dg.DagsterInstance, asset: dg.AssetKey, key: str) -> str:
    """Why the last run that was to materialize this partition failed; empty if it did not fail, or is not known."""
    planned = instance.get_latest_planned_materialization_info(asset, key)
    if planned is None:
        return ""
    failures = instance.all_logs(planned.run_id, {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE})
    for event in (entry.dagster_event for entry in failures if entry.dagster_event):
        error = event.step_failure_data.error if event.is_step_failure else None
        message = (error.cause or error).message if error else event.message  # the outer error names the step only
        return f"run {planned.run_id[:8]} failed: {message}"
    return ""


def end_killed_run(instance: dg.DagsterInstance, run: dg.DagsterRun, why: str) -> None:
    """Let a run whose process was killed end as failed, and give back the slots of pools that it keeps."""
    instance.report_run_failed(run, why)
    instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


def delete_compute_logs(instance: dg.DagsterInstance, run_id: str) -> None:
    """Delete what the steps of a run wrote to stdout and stderr; deleting the run does not delete it."""
    instance.compute_log_manager.delete_logs(prefix=[run_id])


def keep_connections(instance: dg.DagsterInstance) -> None:
    """Let ``instance`` reuse its connections to PostgreSQL, and to the SQLite files of events.

    By default a new connection is opened for every statement, and an event takes several. An instance with Dagster's
    own storage in SQLite, as without our ``dagster.yaml``, gets ``SqliteEvents`` for its events.
    """
    from dagster._core.storage.event_log import SqliteEventLogStorage
    from sqlalchemy import Engine

    from interleaved_assets.defs.private_api.stored_events import RENEWED_AFTER_S, renew_cut_connections

    if instance in _kept:
        return
    _kept.add(instance)
    instance.optimize_for_webserver(
        statement_timeout=_STATEMENT_MS, pool_recycle=RENEWED_AFTER_S, max_overflow=_EXTRA_CONNECTIONS
    )
    events = instance.event_log_storage
    for storage in (instance.run_storage, instance.schedule_storage, events):
        engine = getattr(storage, "_engine", None)
        if isinstance(engine, Engine) and engine.dialect.name == "postgresql":
            renew_cut_connections(engine)
    if type(events) is SqliteEventLogStorage:
        from interleaved_assets.defs.private_api.sqlite import SqliteEvents

        instance._event_storage = SqliteEvents(events._base_dir, events.inst_data)
        instance._event_storage.register_instance(instance)


def events_together(instance: dg.DagsterInstance) -> AbstractContextManager[object]:
    """A block whose events are stored in one transaction: all of them or, where it raises, none.

    After :func:`keep_connections`, and except with Dagster's own storage in PostgreSQL, which commits each statement.
    Other threads and runs that store events wait until the block ends.
    """
    transaction = getattr(instance.event_log_storage, "transaction", nullcontext)
    return transaction()


def shards_awaiting_backfill(
    context: dg.SensorEvaluationContext | dg.ScheduleEvaluationContext, registered: Sequence[str]
) -> set[str]:
    """Shards of ``registered`` that an open backfill has not finished, including those that are not in a run yet: a
    backfill queues its runs one after another, which takes minutes.
    """
    from dagster._core.errors import DagsterDefinitionChangedDeserializationError
    from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus

    waiting: set[str] = set()
    for backfill in context.instance.get_backfills(filters=BulkActionsFilter(statuses=[BulkActionStatus.REQUESTED])):
        if not backfill.is_asset_backfill:
            waiting.update(backfill.partition_names or ())
            continue
        try:
            assert context.repository_def is not None  # the daemon sets it
            data = backfill.get_asset_backfill_data(context.repository_def.asset_graph)
        except DagsterDefinitionChangedDeserializationError:
            continue  # its assets no longer exist: it ends as failed
        left = data.target_subset - data.materialized_subset - data.failed_and_downstream_subset
        waiting.update(item.partition_key for item in left.iterate_asset_partitions() if item.partition_key is not None)
    return waiting & set(registered)
