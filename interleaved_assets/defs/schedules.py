"""Schedules: the nightly runs for shards that are not current, the daily report, the check of the raw root."""

from typing import Final

import dagster as dg

from interleaved_assets.defs.checks import RAW_ROOT_CHECK, up_to_date_checks
from interleaved_assets.defs.requests import AssetJob
from interleaved_assets.model.errors import SettingsError
from interleaved_assets.settings import Settings
from interleaved_assets.settings.sections import CheckSettings, WatchSettings

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
        from interleaved_assets.defs.ticks.nightly import request_due_shards  # the tick begins here

        return request_due_shards(context, settings)

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


def build_report_schedule(settings: Settings) -> dg.ScheduleDefinition:
    """The daily schedule of ``dataset_report``.

    The report is not triggered by its inputs: vanished shards and changed settings produce no event, and every shard
    would trigger a report. It is on from the start, since nothing else in the UI shows that shards are stale.
    """
    description = "Makes dataset_report, and runs the check up_to_date of each stage."
    return dg.ScheduleDefinition(
        name=DAILY_REPORT,
        job=dg.define_asset_job(
            DAILY_REPORT,
            selection=dg.AssetSelection.assets("dataset_report") | up_to_date_checks(settings),
            description=description,
        ),
        cron_schedule=REPORT_CRON,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=description,
    )


def build_check_schedules(settings: Settings) -> list[dg.ScheduleDefinition]:
    """The schedules of the checks that are not about one shard.

    Raises:
        SettingsError: ``checks.raw_root_cron`` or ``checks.up_to_date_cron`` is not a cron expression.
    """
    raw_root = "Runs the check raw_root_fresh: whether the raw root can be listed and shards still land."
    up_to_date = "Runs the check up_to_date of each stage: which shards are not current there, and why."
    always, watched = dg.DefaultScheduleStatus.RUNNING, _from_the_start(settings.watch)
    of_raw_root = dg.AssetSelection.checks(RAW_ROOT_CHECK)
    of_stages = up_to_date_checks(settings)
    return [
        _check_schedule(CHECK_RAW_ROOT, "raw_root_cron", of_raw_root, raw_root, settings.checks, watched),
        _check_schedule(CHECK_UP_TO_DATE, "up_to_date_cron", of_stages, up_to_date, settings.checks, always),
    ]


def _check_schedule(
    name: str,
    setting: str,
    checks: dg.AssetSelection,
    description: str,
    crons: CheckSettings,
    status: dg.DefaultScheduleStatus,
) -> dg.ScheduleDefinition:
    cron = getattr(crons, setting)
    try:
        return dg.ScheduleDefinition(
            name=name,
            job=dg.define_asset_job(name, selection=checks, description=description),
            cron_schedule=cron,
            execution_timezone="UTC",
            default_status=status,
            description=description,
        )
    except dg.DagsterInvalidDefinitionError as error:
        raise _no_cron(f"checks.{setting}", cron, "0 * * * *") from error


def _no_cron(setting: str, value: str, example: str) -> SettingsError:
    return SettingsError(f"{setting}: {value!r} is not a cron expression of five fields, such as {example}")


def _from_the_start(watch: WatchSettings) -> dg.DefaultScheduleStatus:
    return dg.DefaultScheduleStatus.RUNNING if watch.enabled else dg.DefaultScheduleStatus.STOPPED
