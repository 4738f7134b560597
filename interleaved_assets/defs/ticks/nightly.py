"""The tick of the nightly schedule: it compares all shards with their records."""

import dagster as dg

from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.defs.progress import known_progress, not_logged
from interleaved_assets.defs.requests import ranges_of
from interleaved_assets.defs.ticks.due_runs import log_due, range_requests
from interleaved_assets.pipeline.due import due_shards
from interleaved_assets.pipeline.raw.listing import just_written, list_raw_shards
from interleaved_assets.pipeline.raw.snapshot import snapshot_versions
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings


def request_due_shards(
    context: dg.ScheduleEvaluationContext, settings: Settings
) -> list[dg.RunRequest] | dg.SkipReason:
    """Requests for runs over all shards that are due."""
    # a shard that is still being written is left to the sensor or the next night
    raws = [raw for raw in list_raw_shards(settings.storage) if not just_written(raw, settings.watch.quiet_seconds)]
    # shards that the sensor has not reported yet are requested too; the statement takes 0.1 ms for each key, known
    # or not
    known = set(context.instance.get_dynamic_partitions(SHARDS))
    context.instance.add_dynamic_partitions(SHARDS, [raw.key for raw in raws if raw.key not in known])
    registered, progress = known_progress(context, settings)
    progress = progress._replace(failed=not_logged(context.instance, stage_dag(settings), registered))
    due = due_shards(raws, settings, snapshot_versions(raws, settings.storage), progress, all_shards=True)
    log_due(context, due)
    ranges = list(ranges_of(registered, due.shards.keys(), due.current, settings.run.shards_per_run))
    if not ranges:
        return dg.SkipReason(f"all {len(registered)} shards are current, just written, or in the work of a run")
    return range_requests(
        ranges, f"{context.scheduled_execution_time:%Y-%m-%dT%H:%M}", registered, due.shards, settings
    )
