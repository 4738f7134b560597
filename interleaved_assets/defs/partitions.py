"""The partitions of the assets: one per raw shard, added as shards land."""

from typing import Final

import dagster as dg

SHARDS: Final = "shards"
shards = dg.DynamicPartitionsDefinition(name=SHARDS)
