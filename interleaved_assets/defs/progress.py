"""The progress of shards as Dagster has it: made, failed, or in the work of a run or a backfill."""

from collections.abc import Iterable, Sequence

import dagster as dg

from interleaved_assets.defs.latest import latest_ids
from interleaved_assets.defs.partitions import SHARDS, shards
from interleaved_assets.defs.private_api.instance import shards_awaiting_backfill
from interleaved_assets.pipeline.due import Progress
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings


def progress(instance: dg.DagsterInstance, stages: Iterable[str], keys: Sequence[str]) -> Progress:
    """For each stage, which of ``keys`` Dagster has as materialized, failed, or part of a run that has not ended."""
    states: dict[str, dict[str, set[str]]] = {}
    for stage in stages:
        by_state: dict[str, set[str]] = {}
        for key, status in (instance.get_status_by_partition(dg.AssetKey(stage), keys, shards) or {}).items():
            if status is not None:
                by_state.setdefault(status.value, set()).add(key)
        states[stage] = by_state
    return Progress(
        made={stage: found.get("MATERIALIZED", set()) for stage, found in states.items()},
        failed={stage: found.get("FAILED", set()) for stage, found in states.items()},
        busy=set().union(*(found.get("IN_PROGRESS", set()) for found in states.values())),
    )


def not_logged(instance: dg.DagsterInstance, stages: Iterable[str], keys: Sequence[str]) -> dict[str, set[str]]:
    """For each stage, those of ``keys`` that were part of a run since their last materialization.

    The run may have written their records, and have been terminated before it logged that. Dagster counts shards as
    failed only where their run has failed. Each stage takes two queries over all events of its shards.
    """
    lost: dict[str, set[str]] = {}
    for stage in stages:
        planned = latest_ids(instance, stage, dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED, keys)
        made = latest_ids(instance, stage, dg.DagsterEventType.ASSET_MATERIALIZATION, planned)
        lost[stage] = {key for key, event in planned.items() if event > made.get(key, -1)}
    return lost


def known_progress(
    context: dg.SensorEvaluationContext | dg.ScheduleEvaluationContext, settings: Settings
) -> tuple[list[str], Progress]:
    """The registered shards in the order in which they were added, and their progress."""
    registered = list(context.instance.get_dynamic_partitions(SHARDS))
    return registered, progress_of(registered, context, settings)


def progress_of(
    keys: Sequence[str], context: dg.SensorEvaluationContext | dg.ScheduleEvaluationContext, settings: Settings
) -> Progress:
    """The progress of these shards. Shards that an open backfill has not finished count as busy."""
    known = progress(context.instance, stage_dag(settings), keys)
    return known._replace(busy=known.busy | shards_awaiting_backfill(context, keys))
