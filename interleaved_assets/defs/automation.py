"""The sensor that launches runs for new and changed shards."""

import dagster as dg

from interleaved_assets.defs.requests import AssetJob
from interleaved_assets.defs.sensors import from_the_start
from interleaved_assets.settings import Settings


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
        default_status=from_the_start(settings),
    )
    def automation(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        from interleaved_assets.defs.ticks.automation import launch_due_shards  # the tick begins here

        return launch_due_shards(context, settings)

    return automation
