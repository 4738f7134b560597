"""The state of shards: which are current, due, vanished, and how one is forgotten."""
