"""Schedules: the nightly runs for shards that are not current, the daily report, the check of the raw root."""

from typing import Final

import dagster as dg

from interleaved_assets.defs.checks import RAW_ROOT_CHECK, up_to_date_checks
from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.defs.requests import AssetJob, known_progress, range_requests, ranges_of
from interleaved_assets.model.errors import SettingsError
from interleaved_assets.pipeline.due import Due, due_shards
from interleaved_assets.pipeline.raw.listing import just_written, list_raw_shards
from interleaved_assets.pipeline.raw.snapshot import snapshot_versions
from interleaved_assets.pipeline.status import status_lines
from interleaved_assets.settings import Settings

REPORT_CRON: Final = "0 6 * * *"
"""Time of the report in UTC: after the nightly schedule, whose default is 02:00."""
DAILY_REPORT: Final = "daily_report"
CHECK_RAW_ROOT: Final = "check_raw_root"
CHECK_UP_TO_DATE: Final = "check_up_to_date"


def build_nightly_schedule(settings: Settings, job: AssetJob) -> dg.ScheduleDefinition:
    """The schedule over all shards, off until it is turned on in the UI.

    At ten thousand shards, computing Dagster's own staleness takes minutes. Comparing records takes seconds, and also
    finds changed settings and code.

    Raises:
        SettingsError: ``watch.nightly`` is not a cron expression.
    """

    def nightly(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
        # a shard that is still being written is left to the sensor or the next night
        raws = [raw for raw in list_raw_shards(settings.storage) if not just_written(raw, settings.watch.quiet_seconds)]
        # shards that the sensor has not reported yet are requested too; the statement takes 0.1 ms for each key, known
        # or not
        known = set(context.instance.get_dynamic_partitions(SHARDS))
        context.instance.add_dynamic_partitions(SHARDS, [raw.key for raw in raws if raw.key not in known])
        registered, progress = known_progress(context, settings)
        due = due_shards(raws, settings, snapshot_versions(raws, settings.storage), progress, all_shards=True)
        log_due(context, due)
        ranges = list(ranges_of(registered, due.shards.keys(), due.current, settings.run.shards_per_run))
        if not ranges:
            return dg.SkipReason(f"all {len(registered)} shards are current, just written, or in the work of a run")
        return range_requests(
            ranges, f"{context.scheduled_execution_time:%Y-%m-%dT%H:%M}", registered, due.shards, settings
        )

    try:
        return dg.schedule(
            name="nightly",
            job=job,
            cron_schedule=settings.watch.nightly,
            execution_timezone="UTC",
            default_status=dg.DefaultScheduleStatus.STOPPED,
            description="Requests runs for shards that are missing, failed or stale, also after a change of settings "
            "or code.",
        )(nightly)
    except dg.DagsterInvalidDefinitionError as error:
        raise _no_cron("watch.nightly", settings.watch.nightly, "0 2 * * *") from error


def log_due(context: dg.SensorEvaluationContext | dg.ScheduleEvaluationContext, due: Due) -> None:
    """Log why shards are due, and which shards the storage refused."""
    for line in status_lines(due.shards)[:10]:
        context.log.info(f"{line.shards} shards: {line.status.text}")
    if due.refused:
        context.log.warning(f"{len(due.refused)} shards are left out: the storage refused their records")


def build_report_schedule(settings: Settings) -> dg.ScheduleDefinition:
    """The daily schedule of ``dataset_report``.

    The report is not triggered by its inputs: vanished shards and changed settings produce no event, and every shard
    would trigger a report.
    """
    return dg.ScheduleDefinition(
        name=DAILY_REPORT,
        job=dg.define_asset_job(
            DAILY_REPORT, selection=dg.AssetSelection.assets("dataset_report") | up_to_date_checks(settings)
        ),
        cron_schedule=REPORT_CRON,
        execution_timezone="UTC",
        default_status=_from_the_start(settings),
        description="Makes dataset_report every morning, and runs the check up_to_date of each stage.",
    )


def build_raw_root_schedule(settings: Settings) -> dg.ScheduleDefinition:
    """The schedule of the check of the raw root.

    Raises:
        SettingsError: ``checks.raw_root_cron`` is not a cron expression.
    """
    return _check_schedule(
        CHECK_RAW_ROOT,
        "raw_root_cron",
        dg.AssetSelection.checks(RAW_ROOT_CHECK),
        "Runs the check raw_root_fresh: whether the raw root can be listed and shards still land.",
        settings,
    )


def build_up_to_date_schedule(settings: Settings) -> dg.ScheduleDefinition:
    """The schedule of the check whether every shard is current.

    Raises:
        SettingsError: ``checks.up_to_date_cron`` is not a cron expression.
    """
    return _check_schedule(
        CHECK_UP_TO_DATE,
        "up_to_date_cron",
        up_to_date_checks(settings),
        "Runs the check up_to_date of each stage: which shards are not current there, and why.",
        settings,
    )


def _check_schedule(
    name: str, setting: str, checks: dg.AssetSelection, description: str, settings: Settings
) -> dg.ScheduleDefinition:
    cron = getattr(settings.checks, setting)
    try:
        return dg.ScheduleDefinition(
            name=name,
            job=dg.define_asset_job(name, selection=checks),
            cron_schedule=cron,
            execution_timezone="UTC",
            default_status=_from_the_start(settings),
            description=description,
        )
    except dg.DagsterInvalidDefinitionError as error:
        raise _no_cron(f"checks.{setting}", cron, "0 * * * *") from error


def _no_cron(setting: str, value: str, example: str) -> SettingsError:
    return SettingsError(f"{setting}: {value!r} is not a cron expression of five fields, such as {example}")


def _from_the_start(settings: Settings) -> dg.DefaultScheduleStatus:
    return dg.DefaultScheduleStatus.RUNNING if settings.watch.enabled else dg.DefaultScheduleStatus.STOPPED
