"""Limits of what a tar may ask for, so that memory and time follow the options and not the input."""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from interleaved_assets.io.archive.source import MAX_UNPACKED_BYTES
from interleaved_assets.io.fetch import MAX_MEMBER_BYTES, MAX_SAMPLE_BYTES
from interleaved_assets.io.storage import parse_size
from interleaved_assets.model.errors import OptionError
from interleaved_assets.model.schema import RESERVED_COLUMNS


class TarLimits(NamedTuple):
    """What one member, document, sample and shard may take; beyond it, rows get an error.

    Attributes:
        max_member_bytes: a larger member is not read: ``member_too_large``.
        max_document_bytes: a larger JSON member is not parsed: ``document_too_large``. It is kept as it is.
        max_sample_bytes: images of a sample whose bytes come on top of so many are not read: ``sample_too_large``. A
            document that would take so many when parsed and as rows is not parsed: ``document_too_large``.
        max_columns: a document that would bring a shard to more passthrough columns is not read:
            ``document_too_large``.
        max_unpacked_bytes: a compressed tar that unpacks to more, in a temporary file, is refused as a whole.
    """

    max_member_bytes: int = MAX_MEMBER_BYTES
    max_document_bytes: int = 64 * 2**20
    max_sample_bytes: int = MAX_SAMPLE_BYTES
    max_columns: int = 1000
    max_unpacked_bytes: int = MAX_UNPACKED_BYTES


LIMITS: Final = TarLimits()
"""The default limits."""

MAX_NULL_BYTES: Final = 2**20
"""Bytes that a row of nulls may take in the columns whose types the documents of a shard state."""

ROW_BYTES: Final = 300
"""What a row takes besides its text and bytes, roughly: ids, locators, types."""

# an offset or a number, and its bit among the nulls
_CELL_BYTES: Final = 9

_FOUR_BYTE_CHARACTER: Final = re.compile(rb"[\xf0-\xf4]")
# What CPython takes for values besides the characters of their texts: an object and a list with what they begin with,
# a place in either and the number in it, a string between two quotes.
_OBJECT_BYTES, _LIST_BYTES, _PLACE_BYTES, _QUOTE_BYTES = 230, 70, 45, 25


def check_limits(limits: TarLimits) -> TarLimits:
    """``limits``, each of them at least 1.

    Raises:
        OptionError: one is not.
    """
    for name, value in limits._asdict().items():
        if type(value) is not int or value < 1:
            raise OptionError(f"{name} must be a whole number from 1, got {value!r}")
    return limits


def limits_of(options: Mapping[str, Any]) -> TarLimits:
    """The limits among the options of a reader or writer; sizes may be text such as ``"1GiB"``.

    Raises:
        OptionError: one is no size, or less than 1.
    """
    given = {name: options[name] for name in TarLimits._fields if name in options}
    sizes = {name: parse_size(value, name) for name, value in given.items() if name.endswith("_bytes")}
    return check_limits(LIMITS._replace(**given | sizes))


def parsed_bytes(text: bytes) -> int:
    """Bytes that the values of a JSON text take when parsed: rather too many, but known before it is parsed."""
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
    """Bytes that a JSON text and its ``rows`` take without the bytes of images, roughly.

    Each row has the names of its sample and of a member; ``name_bytes`` are those of a row.
    """
    return len(text) + parsed_bytes(text) + rows * (ROW_BYTES + 2 * name_bytes)


def null_bytes(schema: pa.Schema) -> int:
    """Bytes that a row of nulls takes in the passthrough columns of ``schema``."""
    return sum(null_type_bytes(column.type) for column in schema if column.name not in RESERVED_COLUMNS)


def null_type_bytes(dtype: pa.DataType) -> int:
    """Bytes that a null of ``dtype`` takes."""
    types = pa.types
    if types.is_struct(dtype):
        return 1 + sum(null_type_bytes(column.type) for column in dtype)
    if types.is_fixed_size_list(dtype):
        return 1 + int(dtype.list_size) * null_type_bytes(dtype.value_type)
    return 1 + int(dtype.byte_width) if types.is_fixed_size_binary(dtype) else _CELL_BYTES
