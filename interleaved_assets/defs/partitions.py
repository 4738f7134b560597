"""The partitions of every asset of the chain: one per raw shard, added as shards land."""

from collections.abc import Iterable, Sequence
from typing import Final

import dagster as dg

SHARDS: Final = "shards"
shards = dg.DynamicPartitionsDefinition(name=SHARDS)


def failed_shards(instance: dg.DagsterInstance, stages: Iterable[str], keys: Sequence[str]) -> dict[str, set[str]]:
    """For each stage the shards whose last run failed, as Dagster has it."""
    failed: dict[str, set[str]] = {}
    for stage in stages:
        statuses = instance.get_status_by_partition(dg.AssetKey(stage), keys, shards) or {}
        failed[stage] = {key for key, status in statuses.items() if status is not None and status.value == "FAILED"}
    return failed
