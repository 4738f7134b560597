"""The row model: rows and their schema, locators of bytes, the ledger, errors. Loads pyarrow and pandas only."""

from interleaved_assets.model.batch import InterleavedBatch
from interleaved_assets.model.errors import (
    ROW_ERROR_CODES,
    ErrorPolicy,
    ImageError,
    InterleavedError,
    LedgerError,
    MaterializeError,
    MissingDependency,
    OptionError,
    ReadBackError,
    ScoreError,
    SettingsError,
    ShardError,
    StorageError,
    StorageUnavailable,
    UnsupportedModality,
    error_code,
    row_error,
)
from interleaved_assets.model.ledger import LEDGER_SCHEMA, check_balance, drop_reasons, empty_ledger, ledger_of
from interleaved_assets.model.rows import filter_rows
from interleaved_assets.model.schema import (
    INTERLEAVED_SCHEMA,
    RESERVED_COLUMNS,
    align_table,
    reconcile_schema,
    resolve_schema,
)
from interleaved_assets.model.source_ref import SourceRef, build_source_ref, parse_source_ref

__all__ = [
    "INTERLEAVED_SCHEMA",
    "LEDGER_SCHEMA",
    "RESERVED_COLUMNS",
    "ROW_ERROR_CODES",
    "ErrorPolicy",
    "ImageError",
    "InterleavedBatch",
    "InterleavedError",
    "LedgerError",
    "MaterializeError",
    "MissingDependency",
    "OptionError",
    "ReadBackError",
    "ScoreError",
    "SettingsError",
    "ShardError",
    "SourceRef",
    "StorageError",
    "StorageUnavailable",
    "UnsupportedModality",
    "align_table",
    "build_source_ref",
    "check_balance",
    "drop_reasons",
    "empty_ledger",
    "error_code",
    "filter_rows",
    "ledger_of",
    "parse_source_ref",
    "reconcile_schema",
    "resolve_schema",
    "row_error",
]
