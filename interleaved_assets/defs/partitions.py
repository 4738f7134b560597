"""The partitions of every asset of the chain: one per raw shard, added as shards land."""

from typing import Final

import dagster as dg

SHARDS: Final = "shards"
shards = dg.DynamicPartitionsDefinition(name=SHARDS)
