"""The definitions that Dagster loads, for one set of settings."""

import dagster as dg

from interleaved_assets.defs.assets import build_assets
from interleaved_assets.defs.checks import build_raw_root_check, build_up_to_date_check
from interleaved_assets.defs.dataset_report import build_dataset_report
from interleaved_assets.defs.executors import build_executor
from interleaved_assets.defs.forget_job import build_forget_job
from interleaved_assets.defs.requests import build_job
from interleaved_assets.defs.retention import build_retention
from interleaved_assets.defs.schedules import build_nightly_schedule, build_report_schedule
from interleaved_assets.defs.sensor import build_raw_shard_sensor
from interleaved_assets.settings import Settings


def build_definitions(settings: Settings, *, in_pools: bool = True) -> dg.Definitions:
    """Return the assets, checks, jobs, sensors and schedules under ``settings``.

    The default executor runs steps in the process of the run: a process per step takes seconds to start, and one step
    already works on several shards at a time.

    Args:
        in_pools: whether steps wait for a slot of their pool. A run without a daemon does not wait: nothing would
            release the slots of a killed run, and the next run would wait forever.
    """
    job = build_job(settings)
    return dg.Definitions(
        assets=[*build_assets(settings, in_pools=in_pools), build_dataset_report(settings)],
        asset_checks=[build_raw_root_check(settings), build_up_to_date_check(settings)],
        jobs=[job, build_forget_job(settings)],
        sensors=[build_raw_shard_sensor(settings, job)],
        schedules=[
            build_nightly_schedule(settings, job),
            build_report_schedule(settings),
            build_retention(settings),
        ],
        executor=build_executor(settings.run),
    )
