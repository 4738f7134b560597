"""The row model: rows and their schema, locators of bytes, the ledger, errors. Loads pyarrow, not pandas."""

from typing import TYPE_CHECKING

from interleaved_assets.front_door import offered

if TYPE_CHECKING:
    from interleaved_assets.model.batch import InterleavedBatch
    from interleaved_assets.model.columns import RESERVED_COLUMNS
    from interleaved_assets.model.errors import (
        ROW_ERROR_CODES,
        ClusterUnavailable,
        ErrorPolicy,
        ImageError,
        IncompleteShard,
        InterleavedError,
        LedgerError,
        MaterializeError,
        MissingDependency,
        OptionError,
        ReadBackError,
        ScoreError,
        SettingsError,
        ShardError,
        ShardTimeout,
        StorageError,
        StorageUnavailable,
        UnexpectedLayout,
        UnsupportedModality,
        WorkerLost,
        error_code,
        row_error,
    )
    from interleaved_assets.model.ledger import LEDGER_SCHEMA, check_balance, drop_reasons, empty_ledger, ledger_of
    from interleaved_assets.model.rows import filter_rows
    from interleaved_assets.model.schema import INTERLEAVED_SCHEMA, align_table, reconcile_schema, resolve_schema
    from interleaved_assets.model.source_ref import SourceRef, build_source_ref, parse_source_ref
else:
    __getattr__, __dir__ = offered(
        __name__,
        {
            "batch": ("InterleavedBatch",),
            "errors": (
                "ROW_ERROR_CODES",
                "ClusterUnavailable",
                "ErrorPolicy",
                "ImageError",
                "IncompleteShard",
                "InterleavedError",
                "LedgerError",
                "MaterializeError",
                "MissingDependency",
                "OptionError",
                "ReadBackError",
                "ScoreError",
                "SettingsError",
                "ShardError",
                "ShardTimeout",
                "StorageError",
                "StorageUnavailable",
                "UnexpectedLayout",
                "UnsupportedModality",
                "WorkerLost",
                "error_code",
                "row_error",
            ),
            "ledger": ("LEDGER_SCHEMA", "check_balance", "drop_reasons", "empty_ledger", "ledger_of"),
            "rows": ("filter_rows",),
            "columns": ("RESERVED_COLUMNS",),
            "schema": ("INTERLEAVED_SCHEMA", "align_table", "reconcile_schema", "resolve_schema"),
            "source_ref": ("SourceRef", "build_source_ref", "parse_source_ref"),
        },
    )

__all__ = [
    "INTERLEAVED_SCHEMA",
    "LEDGER_SCHEMA",
    "RESERVED_COLUMNS",
    "ROW_ERROR_CODES",
    "ClusterUnavailable",
    "ErrorPolicy",
    "ImageError",
    "IncompleteShard",
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
    "ShardTimeout",
    "SourceRef",
    "StorageError",
    "StorageUnavailable",
    "UnexpectedLayout",
    "UnsupportedModality",
    "WorkerLost",
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
