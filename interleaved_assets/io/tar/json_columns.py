"""Columns from JSON values: the Arrow type that holds every value of a field without loss, and the array.

A field whose values all have one shape gets that shape's type. If they differ (strings and numbers; objects with
different keys; whole numbers beyond 64 bits) its column has the canonical extension type ``arrow.json``, so that
nothing is merged, rounded, filled in or left out.
"""

import json
import math
import struct
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from interleaved_assets.model.source_ref import is_unicode

JSON_TYPE: Final = pa.json_(pa.string())

_STRING, _BOOL, _INT, _FLOAT, _LIST, _OBJECT = 1, 2, 4, 8, 16, 32
_KINDS: Final = {str: _STRING, bool: _BOOL, int: _INT, float: _FLOAT, list: _LIST, dict: _OBJECT}

# Arrow files allow 64 levels, and columns nested that deeply are not queried in practice.
_MAX_DEPTH: Final = 16
_MAX_JSON_DEPTH: Final = 64
# An object with more fields is a mapping, not a record, and each field would be a column of its own in Parquet.
MAX_FIELDS: Final = 1000
"""Most fields of the objects in all columns of a shard together; an object beyond the limit makes its column JSON."""
# All whole numbers up to these are floats of 64 and 32 bits; some larger ones are not.
_FLOAT_INTEGERS: Final = {pa.float64(): 2**53, pa.float32(): 2**24}
_FLOAT32: Final = struct.Struct("<f")


class FieldRoom:
    """The number of fields of objects that the columns of a shard, or one of them, may still get."""

    def __init__(self, fields: int = MAX_FIELDS) -> None:
        self.left = fields


class Shape:
    """The common shape of the values seen so far; nulls fit any shape.

    Args:
        room: fields that objects may still get; an object with more makes the column JSON.
    """

    __slots__ = (
        "_fields",
        "_has_null",
        "_high",
        "_is_mixed",
        "_is_wide",
        "_item",
        "_kinds",
        "_longest",
        "_low",
        "_room",
        "_shortest",
    )

    def __init__(self, room: FieldRoom) -> None:
        self._room = room
        self._kinds = 0
        self._has_null = False
        self._low = self._high = 0  # of the whole numbers seen
        self._is_wide = False  # whether some float does not fit 32 bits
        self._item: Shape | None = None
        self._shortest, self._longest = -1, -1  # of the lists seen
        self._fields: dict[str, Shape] | None = None
        self._is_mixed = False  # whether no Arrow type holds the values as they are

    def observe(self, value: Any, depth: int = 0) -> None:
        """Include a JSON value, in the form that ``json.loads`` gives, in the shape."""
        if value is None:
            self._has_null = True
            return
        if self._is_mixed:
            return
        kind = _KINDS[type(value)]
        self._kinds |= kind
        if kind == _STRING:
            self._is_mixed = not is_unicode(value)
        elif kind == _INT:
            self._low, self._high = min(self._low, value), max(self._high, value)
        elif kind == _FLOAT:
            self._is_wide = self._is_wide or not _is_float32(value)
        elif depth >= _MAX_DEPTH:
            self._is_mixed = True
        elif kind == _LIST:
            self._observe_list(value, depth)
        elif kind == _OBJECT:
            self._observe_object(value, depth)

    def _observe_list(self, values: list[Any], depth: int) -> None:
        length = len(values)
        self._shortest = length if self._shortest < 0 else min(self._shortest, length)
        self._longest = max(self._longest, length)
        item = self._item = self._item or Shape(self._room)
        for value in values:
            item.observe(value, depth + 1)

    def _observe_object(self, value: dict[str, Any], depth: int) -> None:
        if self._fields is None:
            if len(value) > self._room.left:
                self._is_mixed = True
                return
            self._room.left -= len(value)
            self._fields = {key: Shape(self._room) for key in value}
        # Parquet has no object without fields, and names that are empty or not Unicode cannot be used as field names
        if value.keys() != self._fields.keys() or not value or not all(key and is_unicode(key) for key in value):
            self._is_mixed = True
            return
        for key, item in value.items():
            self._fields[key].observe(item, depth + 1)

    def dtype(self) -> pa.DataType | None:
        """Return the Arrow type of the values: null without values, None if only JSON holds them all."""
        kinds = self._kinds
        if self._is_mixed:
            return None
        if not kinds:
            return pa.null()
        if kinds == _STRING:
            return pa.string()
        if kinds == _BOOL:
            return pa.bool_()
        if self.fits(pa.int64()):
            return pa.int64()
        if self.fits(pa.float64()):
            return pa.float64()
        if kinds == _LIST and self._item is not None:
            item = self._item.dtype()
            return None if item is None else pa.list_(item)
        if kinds == _OBJECT and self._fields is not None:
            types = {key: field.dtype() for key, field in self._fields.items()}
            return None if None in types.values() else pa.struct(list(types.items()))
        return None

    def fits(self, dtype: pa.DataType) -> bool:
        """Return whether an array of ``dtype``, which is not JSON, gives every value back unchanged."""
        kinds = self._kinds
        if self._is_mixed:
            return False
        if not kinds:
            return True
        if pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_string_view(dtype):
            return kinds == _STRING
        if pa.types.is_boolean(dtype):
            return kinds == _BOOL
        if pa.types.is_integer(dtype):
            bits = dtype.bit_width - pa.types.is_signed_integer(dtype)
            low = -(2**bits) if pa.types.is_signed_integer(dtype) else 0
            return kinds == _INT and low <= self._low and self._high < 2**bits
        if dtype in _FLOAT_INTEGERS:
            limit = _FLOAT_INTEGERS[dtype]
            is_exact = dtype == pa.float64() or not self._is_wide
            return not kinds & ~(_INT | _FLOAT) and is_exact and -limit <= self._low and self._high <= limit
        if pa.types.is_fixed_size_list(dtype) and not self._shortest == self._longest == dtype.list_size:
            return False
        if pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_fixed_size_list(dtype):
            return kinds == _LIST and self._item is not None and self._item._fits_field(dtype.value_field)
        if pa.types.is_struct(dtype) and kinds == _OBJECT and self._fields is not None:
            names = [field.name for field in dtype]
            return sorted(names) == sorted(self._fields) and all(
                self._fields[field.name]._fits_field(field) for field in dtype
            )
        return False

    def _fits_field(self, field: pa.Field) -> bool:
        return (field.nullable or not self._has_null) and self.fits(field.type)


def is_plain_type(dtype: pa.DataType, depth: int = 0) -> bool:
    """Return whether values of ``dtype`` have a form in JSON that :meth:`Shape.fits` and :func:`array_of` turn back.

    Single values may still have none: NaN and the infinities.
    """
    types = pa.types
    if types.is_string(dtype) or types.is_large_string(dtype) or types.is_string_view(dtype):
        return True
    if types.is_null(dtype) or types.is_boolean(dtype) or types.is_integer(dtype) or dtype in _FLOAT_INTEGERS:
        return True
    if depth >= _MAX_DEPTH:
        return False
    if types.is_list(dtype) or types.is_large_list(dtype) or types.is_fixed_size_list(dtype):
        return is_plain_type(dtype.value_type, depth + 1)
    if types.is_struct(dtype):
        names = [field.name for field in dtype]
        are_names = all(names) and len(set(names)) == len(names) > 0
        return are_names and all(is_plain_type(field.type, depth + 1) for field in dtype)
    return False


def struct_fields(dtype: pa.DataType) -> int:
    """Return the number of fields that the structs in ``dtype`` have together."""
    own = dtype.num_fields if pa.types.is_struct(dtype) else 0
    return own + sum(struct_fields(dtype.field(index).type) for index in range(dtype.num_fields))


def is_plain_value(value: Any, depth: int = 0) -> bool:
    """Return whether JSON can express ``value``, nested no deeper than any parser allows."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list | dict):
        items = value.values() if isinstance(value, dict) else value
        return depth < _MAX_JSON_DEPTH and all(is_plain_value(item, depth + 1) for item in items)
    return True


def array_of(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    """Return JSON values as an array of ``dtype``, which is JSON or fits them (see :meth:`Shape.fits`)."""
    return pa.array([cell_of(value, dtype) for value in values] if is_json(dtype) else values, dtype)


def cell_of(value: Any, dtype: pa.DataType) -> Any:
    """Return a JSON value as a cell of a column of ``dtype``: its text in a column of JSON."""
    return json_text(value) if value is not None and is_json(dtype) else value


def is_json(dtype: pa.DataType) -> bool:
    """Return whether ``dtype`` is ``arrow.json``, over strings of any kind."""
    return isinstance(dtype, pa.JsonType)


def json_text(value: Any) -> str:
    """Return ``value`` as JSON in the form of an ``arrow.json`` column.

    The text has no spaces, its keys are sorted, and characters are not escaped if possible. Numbers that JSON lacks
    become ``NaN``, ``Infinity`` and ``-Infinity``, which ``json.loads`` reads.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if is_unicode(text) else json.dumps(value, separators=(",", ":"))


def _is_float32(value: float) -> bool:
    try:
        return value != value or _FLOAT32.unpack(_FLOAT32.pack(value))[0] == value
    except OverflowError:
        return False
