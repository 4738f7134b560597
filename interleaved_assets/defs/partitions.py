"""The partitions of the assets, one per raw shard, and Dagster's knowledge of each."""

from collections.abc import Iterable, Sequence
from typing import Final

import dagster as dg

from interleaved_assets.pipeline.status.due import KnownRuns

SHARDS: Final = "shards"
shards = dg.DynamicPartitionsDefinition(name=SHARDS)


def progress(instance: dg.DagsterInstance, stages: Iterable[str], keys: Sequence[str]) -> KnownRuns:
    """Return, for each stage, which of ``keys`` are materialized, failed, or part of a run that has not ended."""
    states: dict[str, dict[str, set[str]]] = {}
    for stage in stages:
        by_state: dict[str, set[str]] = {}
        for key, status in (instance.get_status_by_partition(dg.AssetKey(stage), keys, shards) or {}).items():
            if status is not None:
                by_state.setdefault(status.value, set()).add(key)
        states[stage] = by_state
    return KnownRuns(
        made={stage: found.get("MATERIALIZED", set()) for stage, found in states.items()},
        failed={stage: found.get("FAILED", set()) for stage, found in states.items()},
        busy=set().union(*(found.get("IN_PROGRESS", set()) for found in states.values())),
    )
