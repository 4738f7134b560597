"""Raw shards: partition keys, listing, content versions, snapshots."""
