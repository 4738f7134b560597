"""The tar form of a shard: reading and writing documents and their members."""
