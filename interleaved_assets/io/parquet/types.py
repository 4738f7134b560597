"""Substitutes for Arrow types that Parquet lacks, so that columns are read with the type they were written with."""

import base64
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from interleaved_assets.model.casting import mapped_field, mapped_type

# Parquet has no group without fields: an empty struct is stored with this field.
_PLACEHOLDER: Final = pa.field("_empty", pa.null())
_EMPTY: Final = pa.struct([])
_STORED_EMPTY: Final = pa.struct([_PLACEHOLDER])
# Most Arrow functions do not accept views.
_PLAIN_TYPES: Final = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` as stored in a file.

    Every ``struct<>``, at any depth, gets a placeholder field. Dictionaries of views become dictionaries of plain
    values.
    """
    return _mapped_schema(schema, _stored)


def _stored(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(dtype) and dtype.value_type in _PLAIN_TYPES:
        return pa.dictionary(dtype.index_type, _PLAIN_TYPES[dtype.value_type], dtype.ordered)
    if pa.types.is_list_view(dtype):
        return pa.list_view(mapped_field(dtype.value_field, _stored))
    if pa.types.is_large_list_view(dtype):
        return pa.large_list_view(mapped_field(dtype.value_field, _stored))
    return _STORED_EMPTY if dtype == _EMPTY else dtype


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
            field = field.with_type(decoded_type(written.field(field.name).type))
        fields.append(field)
    return _mapped_schema(pa.schema(fields, stored.metadata), lambda dtype: _EMPTY if dtype == _STORED_EMPTY else dtype)


def decoded_type(dtype: pa.DataType) -> pa.DataType:
    """Return ``dtype`` without dictionaries and views at any depth, also views of lists; extension types stay."""
    return mapped_type(dtype, _plain)


def _plain(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(dtype):
        return decoded_type(dtype.value_type)
    if pa.types.is_list_view(dtype):
        return pa.list_(mapped_field(dtype.value_field, _plain))
    if pa.types.is_large_list_view(dtype):
        return pa.large_list(mapped_field(dtype.value_field, _plain))
    return _PLAIN_TYPES.get(dtype, dtype)


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
