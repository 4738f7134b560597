"""Many shards at a time: on threads of this process, or as tasks of a Ray cluster."""
