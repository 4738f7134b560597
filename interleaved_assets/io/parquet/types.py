"""Substitutes for Arrow types that Parquet lacks, so that columns are read with the type they were written with."""

import base64
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from interleaved_assets.model.casting import mapped_field, plain_type

# Parquet has no group without fields: an empty struct is stored with this field.
_PLACEHOLDER: Final = pa.field("_empty", pa.null())
_EMPTY: Final = pa.struct([])
_STORED_EMPTY: Final = pa.struct([_PLACEHOLDER])


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` as stored in a file: every ``struct<>``, at any depth, gets a placeholder field."""
    return _mapped_schema(schema, lambda dtype: _STORED_EMPTY if dtype == _EMPTY else dtype)


def original_schema(stored: pa.Schema, metadata: dict[bytes, bytes] | None) -> pa.Schema:
    """Return the schema that the columns ``stored`` of a file had before they were written.

    Arrow's reader does not restore all types (``timestamp[s]`` becomes ``timestamp[ms]``), but Arrow's writer stores
    the whole schema in the file's metadata. Files of other writers lack it; their types stay.
    """
    written = _written_schema(metadata)
    fields = []
    for field in stored:
        # the type cannot be assigned if the name is repeated
        if written is not None and written.names.count(field.name) == 1 and not pa.types.is_dictionary(field.type):
            field = field.with_type(plain_type(written.field(field.name).type))
        fields.append(field)
    return _mapped_schema(pa.schema(fields, stored.metadata), lambda dtype: _EMPTY if dtype == _STORED_EMPTY else dtype)


def _written_schema(metadata: dict[bytes, bytes] | None) -> pa.Schema | None:
    encoded = (metadata or {}).get(b"ARROW:schema")
    if encoded is None:
        return None
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded)))
    except (ValueError, OSError, pa.ArrowException):
        return None  # without readable metadata, the types of the Parquet schema apply


def _mapped_schema(schema: pa.Schema, rule: Callable[[pa.DataType], pa.DataType]) -> pa.Schema:
    return pa.schema([mapped_field(field, rule) for field in schema], schema.metadata)
