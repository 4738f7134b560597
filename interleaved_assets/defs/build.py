"""Everything Dagster is told of this project, for one set of settings."""

import dagster as dg

from interleaved_assets.defs.assets import build_assets
from interleaved_assets.defs.checks import build_raw_root_check
from interleaved_assets.defs.executors import build_executor
from interleaved_assets.defs.report import build_dataset_report
from interleaved_assets.defs.retention import build_retention
from interleaved_assets.defs.schedules import build_nightly_schedule
from interleaved_assets.defs.sensors import build_automation_sensor, build_raw_shard_sensor
from interleaved_assets.settings import Settings


def build_definitions(settings: Settings) -> dg.Definitions:
    """The assets, checks, sensors and schedules under ``settings``.

    Steps run inside the run's own process: a process per step costs seconds and shares nothing, and one step already
    works on several shards at a time.
    """
    return dg.Definitions(
        assets=[*build_assets(settings), build_dataset_report(settings)],
        asset_checks=[build_raw_root_check(settings)],
        sensors=[build_raw_shard_sensor(settings), build_automation_sensor(settings)],
        schedules=[build_nightly_schedule(settings), build_retention(settings)],
        executor=build_executor(settings),
    )
