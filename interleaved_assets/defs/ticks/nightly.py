"""Evaluate the nightly schedule: compare all shards with their records."""

from collections.abc import Iterable

import dagster as dg

from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.defs.private import latest_event_ids
from interleaved_assets.defs.progress import progress
from interleaved_assets.defs.ticks.due_runs import log_due, range_requests
from interleaved_assets.pipeline.due import due_shards
from interleaved_assets.pipeline.raw.listing import just_written, list_raw_shards
from interleaved_assets.pipeline.raw.snapshot import snapshot_versions
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings


def request_due_shards(
    context: dg.ScheduleEvaluationContext, settings: Settings
) -> list[dg.RunRequest] | dg.SkipReason:
    """Request runs over all shards that are due."""
    # a shard that is still being written is left to the sensor or the next night
    raws = [raw for raw in list_raw_shards(settings.storage) if not just_written(raw, settings.watch.quiet_seconds)]
    # shards that the sensor has not registered yet are requested too
    before = set(context.instance.get_dynamic_partitions(SHARDS))
    context.instance.add_dynamic_partitions(SHARDS, [raw.key for raw in raws if raw.key not in before])
    registered = list(context.instance.get_dynamic_partitions(SHARDS))
    known = progress(context.instance, stage_dag(settings), registered)
    due = due_shards(
        raws,
        settings,
        snapshot_versions(raws, settings.storage),
        known._replace(failed=_without_event(context.instance, stage_dag(settings))),
        all_shards=True,
    )
    log_due(context, due)
    night = f"{context.scheduled_execution_time:%Y-%m-%dT%H:%M}"
    requests = range_requests(registered, due, settings, of_content=dict.fromkeys(due.shards, night))
    if not requests:
        return dg.SkipReason(f"all {len(registered)} shards are current, just written, or in the work of a run")
    return requests


def _without_event(instance: dg.DagsterInstance, stages: Iterable[str]) -> dict[str, set[str]]:
    """Return, for each stage, the shards that were part of a run since their last materialization.

    The run may have written their records, and have been cancelled before it logged that: their pages would show the
    figures of the content before. Dagster counts shards as failed only where their run has failed.
    """
    planned, made = dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED, dg.DagsterEventType.ASSET_MATERIALIZATION
    lost: dict[str, set[str]] = {}
    for stage in stages:
        before = latest_event_ids(instance, dg.AssetKey(stage), made)
        lost[stage] = {
            key
            for key, event in latest_event_ids(instance, dg.AssetKey(stage), planned).items()
            if event > before.get(key, -1)
        }
    return lost
