"""The formats of shard files, and which one a file has."""
