"""The state of shards: current, due or vanished, and the removal of a shard's outputs."""
