"""The deletion of old runs, except those that hold the latest event of a shard or asset.

Deleting a run deletes its events. Without its last materialization, a shard would show as never materialized. A shard
whose partition was removed shows nothing, and keeps no run.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import dagster as dg

from interleaved_assets.defs.forget_job import FORGET_SHARDS
from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.defs.private import delete_run_and_files, latest_event_ids
from interleaved_assets.defs.requests import BRING_UP_TO_DATE
from interleaved_assets.defs.schedules import DAILY_REPORT
from interleaved_assets.pipeline.run.record import RAW_SHARDS
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings

DELETE_OLD_RUNS: Final = "delete_old_runs"
REPORT: Final = "dataset_report"
_CRON: Final = "30 3 * * *"
_PAGE: Final = 500
_FINISHED: Final = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
_EVENTS: Final = (dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_OBSERVATION)


def build_retention(settings: Settings) -> dg.ScheduleDefinition:
    """Return a nightly job that deletes runs older than ``run.keep_days``."""
    days = settings.run.keep_days

    @dg.op(name="delete_replaced_runs", description=f"Deletes runs over {days} days old that hold no latest event.")
    def delete(context: dg.OpExecutionContext) -> None:
        deleted = delete_old_runs(context.instance, datetime.now(UTC) - timedelta(days=days), settings)
        context.log.info(f"deleted {deleted} runs that were created more than {days} days ago")

    @dg.job(
        name=DELETE_OLD_RUNS,
        executor_def=dg.in_process_executor,
        description="Deletes old runs. Dagster has no setting for that; dagster.yaml sets the retention of ticks only.",
    )
    def job() -> None:
        delete()

    return dg.ScheduleDefinition(
        name=DELETE_OLD_RUNS,
        job=job,
        cron_schedule=_CRON,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Deletes runs older than run.keep_days ({days}) whose results were all replaced by later runs.",
    )


def delete_old_runs(instance: dg.DagsterInstance, before: datetime, settings: Settings) -> int:
    """Delete finished runs of this project, created before ``before``, that hold no latest event; with their logs.

    Runs of other projects that share the instance are kept.

    Returns:
        The number of runs deleted.
    """
    finished = list(_finished_runs(instance, before, settings))
    in_force = set(_runs_of_latest_events(instance)) if finished else set()
    deletable = [run_id for run_id in finished if run_id not in in_force]
    for run_id in deletable:
        delete_run_and_files(instance, run_id)
    return len(deletable)


def _runs_of_latest_events(instance: dg.DagsterInstance) -> Iterator[str]:
    """Yield the run of the last event of each kind, for each asset and each partition that is still there."""
    registered = set(instance.get_dynamic_partitions(SHARDS))
    fetches = (instance.fetch_materializations, instance.fetch_observations)
    for key in instance.get_asset_keys():
        for kind, fetch in zip(_EVENTS, fetches, strict=True):
            yield from (record.run_id for record in fetch(key, limit=1).records)
            latest = latest_event_ids(instance, key, kind)
            ids = [latest[shard] for shard in latest.keys() & registered]
            for start in range(0, len(ids), _PAGE):
                some = dg.AssetRecordsFilter(key, storage_ids=ids[start : start + _PAGE])
                yield from (record.run_id for record in fetch(some, limit=_PAGE).records)


def _finished_runs(instance: dg.DagsterInstance, before: datetime, settings: Settings) -> Iterator[str]:
    cursor = None
    while page := instance.get_run_records(
        dg.RunsFilter(statuses=_FINISHED, created_before=before), limit=_PAGE, cursor=cursor
    ):
        yield from (record.dagster_run.run_id for record in page if _is_ours(record.dagster_run, settings))
        cursor = page[-1].dagster_run.run_id


def _is_ours(run: dg.DagsterRun, settings: Settings) -> bool:
    """Return whether a run is of a job of this project, or only of its assets and checks."""
    jobs = (DELETE_OLD_RUNS, BRING_UP_TO_DATE, DAILY_REPORT, FORGET_SHARDS)
    if run.job_name in jobs:
        return True
    ours = {dg.AssetKey(name) for name in (RAW_SHARDS, *stage_dag(settings), REPORT)}
    targets = {*(run.asset_selection or ()), *(check.asset_key for check in run.asset_check_selection or ())}
    return bool(targets) and targets <= ours
