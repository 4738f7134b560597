"""The schedules: runs by night for shards that are not current, and the daily report."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import dagster as dg

from interleaved_assets.defs.checks import RAW_ROOT_CHECK, up_to_date_checks
from interleaved_assets.defs.requests import AssetJob
from interleaved_assets.model.errors import SettingsError
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
        from interleaved_assets.defs.ticks.nightly import request_due_shards  # the tick begins here

        return request_due_shards(context, settings)

    with _cron_checked("watch.nightly", settings.watch.nightly):
        return dg.schedule(
            name="nightly",
            job=job,
            cron_schedule=settings.watch.nightly,
            execution_timezone="UTC",
            default_status=dg.DefaultScheduleStatus.STOPPED,
            description="Requests runs for shards that are missing, failed or stale, also after a change of settings "
            "or code.",
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
