"""Parser of sizes and encodings in a Parquet footer, and the comparison of its numbers of rows with each other.

pyarrow's ``metadata.row_group(i).column(j)`` aborts the process if size statistics are damaged, so it is not used.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa

MAX_DEPTH: Final = 100
"""Maximum nesting of columns: Arrow uses at least one stack frame per level."""

BYTE_ARRAY: Final = 6
_VALUE_BYTES: Final = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
_FIXED_BYTE_ARRAY: Final = 7
_DICTIONARY_ENCODINGS: Final = frozenset({2, 8})
_DELTA_BYTE_ARRAY: Final = 7
_REPEATED: Final = 2
# Estimate per value: an index or offset, and the levels of nested columns.
_OFFSET_BYTES: Final = 8

# Types of the Thrift compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)


@dataclass(frozen=True)
class ColumnChunk:
    """One leaf column of one row group. Sizes are in bytes."""

    path: tuple[str, ...]
    physical: int
    """Parquet's number of the physical type."""
    has_dictionary: bool
    shares_prefixes: bool
    """True if values may be stored as differences from the previous value."""
    encoded_bytes: int
    """Decompressed, but still encoded size, as stated in the footer."""
    least_decoded_bytes: int
    """Minimum size of the decoded values, without what dictionaries and shared prefixes save.

    The dictionary of a string or bytes column does not count: Arrow holds it whole, however few rows it reads.
    """


@dataclass(frozen=True)
class RowGroup:
    """One row group."""

    rows: int
    chunks: tuple[ColumnChunk, ...]


class _Leaf(NamedTuple):
    path: tuple[str, ...]
    physical: int
    value_bytes: int
    """Size of a decoded value with its offset and levels."""
    is_repeated: bool
    """True if a row can have several values."""


def parse_row_groups(data: bytes) -> tuple[RowGroup, ...]:
    """Return the row groups of a footer that :func:`~.seal.checked_footer` returned.

    Raises:
        pa.ArrowInvalid: it is damaged, nested deeper than :data:`MAX_DEPTH`, or its numbers of rows contradict each
            other.
    """
    try:
        fields = _Compact(data).struct()
        leaves = _leaves(fields[2])
        groups = tuple(_group(number, group, leaves) for number, group in enumerate(fields.get(4, ())))
        if (rows := sum(group.rows for group in groups)) != fields[3]:
            raise pa.ArrowInvalid(f"its footer states {fields[3]} rows, and its row groups have {rows}")
        return groups
    except pa.ArrowInvalid:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        # a field is missing or has a wrong type, or fields are nested too deep
        raise pa.ArrowInvalid(f"its footer cannot be read: {error!r}") from error


def _group(number: int, fields: dict[int, Any], leaves: list[_Leaf]) -> RowGroup:
    rows = _count(fields[3])
    for column, leaf in zip(fields[1], leaves, strict=True):
        values = column[3][5]
        # nulls count as values, and so do empty lists
        if values < rows or (values > rows and not leaf.is_repeated):
            raise pa.ArrowInvalid(
                f"row group {number} has {rows} rows, and its column {'.'.join(leaf.path)!r} has {values} values"
            )
    return RowGroup(rows, tuple(_chunk(column[3], leaf) for column, leaf in zip(fields[1], leaves, strict=True)))


def _chunk(fields: dict[int, Any], leaf: _Leaf) -> ColumnChunk:
    encodings = frozenset(fields[2])
    values, encoded, compressed = _count(fields[5]), _count(fields[6]), _count(fields[7])
    dictionary = 0
    if leaf.physical == BYTE_ARRAY and compressed and 11 in fields:  # its first page, up to those of data
        dictionary = encoded * min(max(0, fields[9] - fields[11]), compressed) // compressed
    return ColumnChunk(
        path=leaf.path,
        physical=leaf.physical,
        has_dictionary=bool(encodings & _DICTIONARY_ENCODINGS) or 11 in fields,
        shares_prefixes=_DELTA_BYTE_ARRAY in encodings,
        encoded_bytes=encoded,
        least_decoded_bytes=max(encoded - dictionary, values * leaf.value_bytes),
    )


def _count(value: int) -> int:
    if value < 0:
        raise ValueError(f"a negative count, {value}")
    return value


def _leaves(elements: list[dict[int, Any]]) -> list[_Leaf]:
    """Return the leaf columns of a schema, whose elements are in depth-first order."""
    leaves: list[_Leaf] = []
    # for each open group: number of remaining children, its path, and whether it is in a list or map
    open_groups: list[tuple[int, tuple[str, ...], bool]] = [(elements[0].get(5, 0), (), False)]
    for element in elements[1:]:
        while open_groups and open_groups[-1][0] == 0:
            open_groups.pop()
        left, path, in_list = open_groups[-1]
        open_groups[-1] = (left - 1, path, in_list)
        own = (*path, element[4].decode())
        is_repeated = in_list or element.get(3) == _REPEATED
        if children := element.get(5, 0):
            if len(open_groups) > MAX_DEPTH:
                raise pa.ArrowInvalid(f"column {own[0]!r} is nested more than {MAX_DEPTH} levels deep")
            open_groups.append((_count(children), own, is_repeated))
        else:
            physical = element[1]
            width = element.get(2, 0) if physical == _FIXED_BYTE_ARRAY else _VALUE_BYTES.get(physical, 0)
            leaves.append(_Leaf(own, physical, _count(width) + _OFFSET_BYTES, is_repeated))
    return leaves


class _Compact:
    """A reader of the Thrift compact protocol: structs become dictionaries by field number.

    It raises ``IndexError``, ``ValueError`` or ``RecursionError`` for invalid bytes. Time is linear in their number. A
    footer has about forty values per column and row group, so common types are tested first and without a function
    call.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def struct(self) -> dict[int, Any]:
        data, fields, number = self._data, {}, 0
        while (head := data[self._at]) != 0:
            self._at += 1
            kind = head & 15
            number = number + (head >> 4) if head >> 4 else self._signed()
            fields[number] = kind == _TRUE if kind <= _FALSE else self._value(kind)
        self._at += 1
        return fields

    def _value(self, kind: int) -> Any:
        if _I16 <= kind <= _I64:
            return self._signed()
        if kind == _BINARY:
            return self._bytes(self._unsigned())
        if kind == _STRUCT:
            return self.struct()
        if kind in (_LIST, _SET):
            return self._list()
        if kind <= _BYTE:
            return self._bytes(1)[0]
        if kind == _DOUBLE:
            return self._bytes(8)
        if kind == _MAP:
            count = self._counted(self._unsigned())
            kinds = self._bytes(1)[0] if count else 0
            return [(self._value(kinds >> 4), self._value(kinds & 15)) for _ in range(count)]
        raise ValueError(f"a field of type {kind}")

    def _list(self) -> list[Any]:
        head = self._bytes(1)[0]
        count = self._counted(self._unsigned() if head >> 4 == 15 else head >> 4)
        kind = head & 15
        if _I16 <= kind <= _I64:
            return [self._signed() for _ in range(count)]
        return [self._value(kind) for _ in range(count)]

    def _counted(self, count: int) -> int:
        if count > len(self._data) - self._at:  # each element takes at least one byte
            raise ValueError(f"a list of {count} in {len(self._data) - self._at} bytes")
        return count

    def _bytes(self, count: int) -> bytes:
        self._at += count
        if self._at > len(self._data):
            raise ValueError("a value that goes beyond the end")
        return self._data[self._at - count : self._at]

    def _unsigned(self) -> int:
        value = self._data[self._at]
        self._at += 1
        if value < 0x80:
            return value
        value &= 0x7F
        for shift in range(7, 64, 7):
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a number of more than 64 bits")

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)
