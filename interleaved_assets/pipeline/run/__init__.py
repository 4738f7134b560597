"""A run of stages over shards: what a stage, a check and a record are, one shard and many, threads and Ray."""
