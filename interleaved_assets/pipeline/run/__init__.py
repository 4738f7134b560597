"""A run of stages over shards: stages, checks and records, one shard and many, threads and Ray."""
