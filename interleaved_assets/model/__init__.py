"""What a sample is: rows, their schema, where their bytes lie, what can be wrong. Loads pyarrow and pandas only."""

from interleaved_assets.model.batch import InterleavedBatch
from interleaved_assets.model.errors import ErrorPolicy, InterleavedError
from interleaved_assets.model.schema import (
    INTERLEAVED_SCHEMA,
    RESERVED_COLUMNS,
    align_table,
    reconcile_schema,
    resolve_schema,
)

__all__ = [
    "INTERLEAVED_SCHEMA",
    "RESERVED_COLUMNS",
    "ErrorPolicy",
    "InterleavedBatch",
    "InterleavedError",
    "align_table",
    "reconcile_schema",
    "resolve_schema",
]
