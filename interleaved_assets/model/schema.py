"""The columns and types of the row model, and the alignment of tables to them."""

import warnings
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from interleaved_assets.model.casting import plain_type, with_columns
from interleaved_assets.model.columns import INTERLEAVED_COLUMNS, RESERVED_COLUMNS
from interleaved_assets.model.errors import OptionError, ShardError

INTERLEAVED_SCHEMA: Final = pa.schema(
    [pa.field(name, dtype, nullable) for name, dtype, nullable, _ in INTERLEAVED_COLUMNS]
)
"""Reserved columns, in order. One row is one item of a document; position -1 is its metadata row."""


def reconcile_schema(inferred: pa.Schema) -> pa.Schema:
    """Return ``inferred`` in its order with canonical types for reserved columns; passthrough columns keep their types.

    Dictionaries, runs and views in passthrough columns are removed, since they are ways to store values. A reserved
    ``large_string`` column keeps that type.
    """
    fields = []
    for field in inferred:
        if field.name in RESERVED_COLUMNS:
            canonical = INTERLEAVED_SCHEMA.field(field.name)
            # a large column stays large: 32-bit offsets overflow at 2 GiB
            is_large = canonical.type == pa.string() and field.type == pa.large_string()
            fields.append(canonical.with_type(field.type) if is_large else canonical)
        else:
            fields.append(field.with_type(plain_type(field.type)))
    return pa.schema(fields, metadata=inferred.metadata)


def resolve_schema(schema: pa.Schema | None, overrides: Mapping[str, pa.DataType] | None) -> pa.Schema | None:
    """Return the schema that a reader or writer aligns tables to; None if tables are only reconciled.

    ``schema`` takes precedence over ``overrides``, with a warning if both are given. ``overrides`` alone change types
    in :data:`INTERLEAVED_SCHEMA`; names that are not reserved are appended.

    Raises:
        OptionError: ``schema`` is no Arrow schema, or has no columns, so that no row would be left, or a type in
            ``overrides`` is none of Arrow's.
    """
    if schema is not None:
        if not isinstance(schema, pa.Schema):
            raise OptionError(f"schema is a pyarrow.Schema, got {type(schema).__name__}")
        if not schema.names:
            raise OptionError("schema has no columns: no row would be left")
        if overrides:
            warnings.warn("schema_overrides is ignored because schema is given: use one of the two", stacklevel=3)
        return schema
    if not overrides:
        return None
    fields = {field.name: field for field in INTERLEAVED_SCHEMA}
    if not isinstance(overrides, Mapping):
        raise OptionError(f"schema_overrides are types by the names of columns, got {type(overrides).__name__}")
    for name, dtype in overrides.items():
        if not isinstance(dtype, pa.DataType):
            raise OptionError(f"schema_overrides: the type of {name} is a pyarrow.DataType, got {dtype!r}")
        fields[name] = fields[name].with_type(dtype) if name in fields else pa.field(name, dtype)
    return pa.schema(list(fields.values()))


def align_table(table: pa.Table, target: pa.Schema) -> pa.Table:
    """Return ``table`` with exactly the columns, order and types of ``target``.

    Missing columns are filled with nulls, columns that ``target`` lacks are removed. Casts are safe: numbers keep their
    values, and only valid UTF-8 bytes become strings.

    Raises:
        pa.ArrowInvalid: a value does not fit its target type.
        ShardError: a non-nullable column is missing or has nulls.
    """
    aligned = with_columns(table, target)
    for field, column in zip(target, aligned.columns, strict=True):
        if not field.nullable and column.null_count:
            raise ShardError(
                f"column {field.name!r} must not be null, but is null in {column.null_count} of {len(column)} rows"
            )
    return aligned


def align_or_reconcile(table: pa.Table, target: pa.Schema | None) -> pa.Table:
    """Align ``table`` to ``target``, or without one to the table's own reconciled schema; see :func:`align_table`."""
    return align_table(table, reconcile_schema(table.schema) if target is None else target)
