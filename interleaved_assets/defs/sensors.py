"""The sensors: one reports new and changed shards, the other launches runs for them."""

import dagster as dg

from interleaved_assets.defs.requests import AssetJob
from interleaved_assets.pipeline.record import RAW_SHARDS
from interleaved_assets.settings import Settings
from interleaved_assets.settings.sections import WatchSettings


def build_raw_shard_sensor(settings: Settings) -> dg.SensorDefinition:
    """The sensor that lists the raw root; ``automation`` launches runs for the shards that it reports."""

    @dg.sensor(
        name="raw_shard_sensor",
        description="Lists the raw root, adds a partition for each new shard, and reports new and changed shards. "
        "Removes partitions of which neither a tar nor an output is left. It launches nothing.",
        asset_selection=dg.AssetSelection.assets(RAW_SHARDS),
        minimum_interval_seconds=settings.watch.interval_seconds,
        default_status=_from_the_start(settings.watch),
    )
    def raw_shard_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        from interleaved_assets.defs.ticks.raw_shards import report_raw_shards  # the tick begins here

        return report_raw_shards(context, settings)

    return raw_shard_sensor


def build_automation_sensor(settings: Settings, job: AssetJob) -> dg.SensorDefinition:
    """The sensor that launches the stages for shards that ``raw_shard_sensor`` has reported as new or changed.

    A shard is requested once for each content, and only while no run or backfill works on it. A shard that failed with
    its present content is left to the nightly schedule.
    """

    @dg.sensor(
        name="automation",
        job=job,
        description="Launches the stages that are due for shards that raw_shard_sensor has reported as new or changed: "
        "once for each content, and not while a run or a backfill works on the shard.",
        minimum_interval_seconds=settings.watch.interval_seconds,
        default_status=_from_the_start(settings.watch),
    )
    def automation(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        from interleaved_assets.defs.ticks.automation import launch_due_shards  # the tick begins here

        return launch_due_shards(context, settings)

    return automation


def _from_the_start(watch: WatchSettings) -> dg.DefaultSensorStatus:
    """The status of a sensor until it is turned on or off in the UI."""
    return dg.DefaultSensorStatus.RUNNING if watch.enabled else dg.DefaultSensorStatus.STOPPED
