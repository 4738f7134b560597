"""Raw shards: their keys, where they lie, what changed."""
