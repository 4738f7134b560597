"""The sensor: it registers new and changed shards, and requests their runs."""

import dagster as dg

from interleaved_assets.defs.requests import AssetJob
from interleaved_assets.settings import Settings


def build_raw_shard_sensor(settings: Settings, job: AssetJob) -> dg.SensorDefinition:
    """Return the sensor that lists the raw root.

    A shard is requested once for each content, and only while no run works on it. A shard that failed with its present
    content is left to the nightly schedule.
    """

    @dg.sensor(
        name="raw_shard_sensor",
        job=job,
        description="Lists the raw root, adds a partition for each new shard, and requests a run for new and changed "
        "shards: once for each content, and not while a run works on the shard. Removes partitions of which neither a "
        "tar nor an output is left.",
        minimum_interval_seconds=settings.watch.interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING if settings.watch.enabled else dg.DefaultSensorStatus.STOPPED,
    )
    def raw_shard_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        from interleaved_assets.defs.ticks.raw_shards import report_raw_shards  # the tick begins here

        return report_raw_shards(context, settings)

    return raw_shard_sensor
