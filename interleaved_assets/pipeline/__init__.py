"""Stages, their records, and what follows from the records: status, shards that are due, checks, lineage."""
