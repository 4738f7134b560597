"""Estimates of the bytes that documents, rows and nulls take, made before these exist, to compare with limits."""

import re
from typing import Final

import pyarrow as pa

from interleaved_assets.model.columns import RESERVED_COLUMNS

MAX_NULL_BYTES: Final = 2**20
"""Most bytes that a row of nulls may take in the columns whose types the documents of a shard state."""

ROW_BYTES: Final = 300
"""Rough bytes of a row besides its text and bytes: ids, locators, types."""

# an offset or a number, and its bit among the nulls
_CELL_BYTES: Final = 9

_FOUR_BYTE_CHARACTER: Final = re.compile(rb"[\xf0-\xf4]")
# Bytes that CPython takes for values besides the characters of their texts: the overhead of an object or list, a place
# in either and the number in it, a string between two quotes.
_OBJECT_BYTES, _LIST_BYTES, _PLACE_BYTES, _QUOTE_BYTES = 230, 70, 45, 25


def parsed_bytes(text: bytes) -> int:
    """Return the bytes that the values of a JSON text take when parsed, estimated before parsing, rather too many."""
    # one character beyond the first 65,536 makes all of a string four bytes wide
    width = 1 if text.isascii() else 4 if _FOUR_BYTE_CHARACTER.search(text) else 2
    return (
        width * len(text)
        + _OBJECT_BYTES * text.count(b"{")
        + _LIST_BYTES * text.count(b"[")
        + _PLACE_BYTES * text.count(b",")
        + _QUOTE_BYTES * text.count(b'"')
    )


def document_bytes(text: bytes, rows: int, name_bytes: int) -> int:
    """Return roughly the bytes that a JSON text and its ``rows`` take without the bytes of images.

    Each row has the names of its sample and of a member; ``name_bytes`` is their length in one row.
    """
    return len(text) + parsed_bytes(text) + rows * (ROW_BYTES + 2 * name_bytes)


def null_bytes(schema: pa.Schema) -> int:
    """Return the bytes that a row of nulls takes in the passthrough columns of ``schema``."""
    return sum(null_type_bytes(column.type) for column in schema if column.name not in RESERVED_COLUMNS)


def null_type_bytes(dtype: pa.DataType) -> int:
    """Return the bytes that a null of ``dtype`` takes."""
    types = pa.types
    if types.is_struct(dtype):
        return 1 + sum(null_type_bytes(column.type) for column in dtype)
    if types.is_fixed_size_list(dtype):
        return 1 + int(dtype.list_size) * null_type_bytes(dtype.value_type)
    return 1 + int(dtype.byte_width) if types.is_fixed_size_binary(dtype) else _CELL_BYTES
