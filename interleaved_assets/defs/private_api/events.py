"""Private API of Dagster: its events, queried without loading them, and what it records of a step."""

from collections.abc import Collection
from typing import Final

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData as TargetMaterialization,
)
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION
from dagster._utils.interrupts import capture_interrupts as interrupts_between_steps

__all__ = [
    "RECORDS_NOTHING",
    "UNCHANGED",
    "TargetMaterialization",
    "delete_compute_logs",
    "end_killed_run",
    "event_ids",
    "failure_of_last_run",
    "interrupts_between_steps",
    "last_materializations",
    "latest_event_ids",
]

RECORDS_NOTHING: Final = SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION
"""Metadata key of an output for which Dagster records no materialization. Dagster sets it on observable source
assets."""
UNCHANGED: Final = "unchanged"
"""Metadata key of an evaluation about a shard that was not made anew. The storages of ``sqlite_events.py``
and ``postgres.py`` store it in the table of evaluations, from which the UI shows checks, and not as an event too."""


def latest_event_ids(
    instance: dg.DagsterInstance,
    asset: dg.AssetKey,
    kind: dg.DagsterEventType,
    keys: Collection[str] | None = None,
) -> dict[str, int]:
    """The id of the last event of each partition, of ``keys`` or of all, without loading the events."""
    named = None if keys is None else set(keys)
    return dict(instance.get_latest_storage_id_by_partition(asset, kind, named))


def event_ids(
    instance: dg.DagsterInstance,
    kind: dg.DagsterEventType,
    *,
    asset: dg.AssetKey | None = None,
    run_id: str | None = None,
    limit: int | None = None,
) -> list[int]:
    """Ids of the events of an asset or of a run, the latest first, without loading the events."""
    found = instance.get_asset_event_summary_records(
        kind,  # type: ignore[arg-type]  # one of the kinds that Dagster names
        asset,
        run_id=run_id,
        limit=limit,
    )
    return [record.storage_id for record in found]


def last_materializations(
    instance: dg.DagsterInstance, asset: dg.AssetKey, run_id: str, number: int
) -> dict[str, TargetMaterialization]:
    """The last ``number`` materializations of an asset by a run, by partition, without loading their events."""
    found = instance.get_asset_event_summary_records(
        dg.DagsterEventType.ASSET_MATERIALIZATION, asset, run_id=run_id, limit=number
    )
    return {
        str(made.partition): TargetMaterialization(storage_id=made.storage_id, run_id=run_id, timestamp=made.timestamp)
        for made in found
    }


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
