"""The schedules: nightly runs for shards that are not current, and the daily report."""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Final

import dagster as dg

from interleaved_assets.defs.checks import RAW_ROOT_CHECK, up_to_date_checks
from interleaved_assets.defs.partitions import SHARDS, progress
from interleaved_assets.defs.private import latest_event_ids
from interleaved_assets.defs.requests import AssetJob, log_due, range_requests
from interleaved_assets.model.errors import SettingsError
from interleaved_assets.pipeline.raw.listing import just_written, list_raw_shards
from interleaved_assets.pipeline.raw.snapshot import snapshot_versions
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status.due import KnownRuns, due_shards
from interleaved_assets.settings import Settings

DAILY_REPORT: Final = "daily_report"


def build_nightly_schedule(settings: Settings, job: AssetJob) -> dg.ScheduleDefinition:
    """Return the schedule over all shards, off until it is turned on in the UI.

    At ten thousand shards, computing Dagster's own staleness takes minutes. Comparing records takes seconds, and also
    finds changed settings and code.

    Raises:
        SettingsError: ``watch.nightly`` is not a cron expression.
    """

    def nightly(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
        return request_due_shards(context, settings)

    with _cron_checked("watch.nightly", settings.watch.nightly):
        return dg.schedule(
            name="nightly",
            job=job,
            cron_schedule=settings.watch.nightly,
            execution_timezone="UTC",
            default_status=dg.DefaultScheduleStatus.STOPPED,
            description="Requests runs for shards that are missing, failed or stale, also after a change of settings "
            "or code. Adds a partition for each new shard, in a preview of its tick too.",
        )(nightly)


def build_report_schedule(settings: Settings) -> dg.ScheduleDefinition:
    """Return the daily schedule of ``dataset_report`` and of the checks over all shards.

    The report is not triggered by its inputs: vanished shards and changed settings produce no event, and every shard
    would trigger a report. It is on from the start, because nothing else in the UI shows that shards are stale.

    Raises:
        SettingsError: ``watch.report`` is not a cron expression.
    """
    description = "Makes dataset_report, and runs the checks over all shards: up_to_date of each stage, raw_root_fresh."
    checks = up_to_date_checks(settings) | dg.AssetSelection.checks(RAW_ROOT_CHECK)
    selection = dg.AssetSelection.assets("dataset_report") | checks
    with _cron_checked("watch.report", settings.watch.report):
        return dg.ScheduleDefinition(
            name=DAILY_REPORT,
            job=dg.define_asset_job(DAILY_REPORT, selection=selection, description=description),
            cron_schedule=settings.watch.report,
            execution_timezone="UTC",
            default_status=dg.DefaultScheduleStatus.RUNNING,
            description=description,
        )


@contextmanager
def _cron_checked(setting: str, value: str) -> Iterator[None]:
    try:
        yield
    except dg.DagsterInvalidDefinitionError as error:
        raise SettingsError(
            f"{setting}: {value!r} is not a cron expression of five fields, such as 0 2 * * *"
        ) from error


def request_due_shards(
    context: dg.ScheduleEvaluationContext, settings: Settings
) -> list[dg.RunRequest] | dg.SkipReason:
    """Request runs over all shards that are due."""
    # a shard that is still being written is left for the sensor or the next night
    raws = [raw for raw in list_raw_shards(settings.storage) if not just_written(raw, settings.watch.quiet_seconds)]
    # shards that the sensor has not registered yet are requested too
    before = set(context.instance.get_dynamic_partitions(SHARDS))
    context.instance.add_dynamic_partitions(SHARDS, [raw.key for raw in raws if raw.key not in before])
    registered = list(context.instance.get_dynamic_partitions(SHARDS))
    busy = progress(context.instance, stage_dag(settings), registered).busy
    known = _runs_by_events(context.instance, stage_dag(settings), busy)
    due = due_shards(raws, settings, snapshot_versions(raws, settings.storage), known, all_shards=True)
    log_due(context, due)
    night = f"{context.scheduled_execution_time:%Y-%m-%dT%H:%M}"
    requests = range_requests(registered, due, settings, of_content=dict.fromkeys(due.shards, night))
    if not requests:
        return dg.SkipReason(f"all {len(registered)} shards are current, just written, or in the work of a run")
    return requests


def _runs_by_events(instance: dg.DagsterInstance, stages: Iterable[str], busy: AbstractSet[str]) -> KnownRuns:
    """Return which shards have a materialization, and which were part of a run since their last one.

    Such a run may have written their records, and have been cancelled before it logged the events: their pages would
    show the figures of the earlier content. Dagster counts shards as failed only if their run failed, and counts them
    as materialized also after the run with the event was deleted.
    """
    planned, made = dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED, dg.DagsterEventType.ASSET_MATERIALIZATION
    shown, lost = dict[str, AbstractSet[str]](), dict[str, AbstractSet[str]]()
    for stage in stages:
        before = latest_event_ids(instance, dg.AssetKey(stage), made)
        begun = latest_event_ids(instance, dg.AssetKey(stage), planned)
        shown[stage] = before.keys()
        lost[stage] = {key for key, event in begun.items() if event > before.get(key, -1)}
    return KnownRuns(shown, lost, busy)
