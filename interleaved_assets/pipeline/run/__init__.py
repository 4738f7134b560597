"""Shards through stages: one shard, many on threads or on a Ray cluster, and how fast they go."""
