"""One shard through one stage as plain functions, without Dagster.

Functions that use the storage raise StorageError where it refuses, StorageUnavailable where it does not answer, and
ShardError where a record or another file of a stage is damaged; functions that read or select rows raise
MaterializeError and ScoreError where the policy for errors is ``error``. Docstrings name what else is raised, and when.
"""
