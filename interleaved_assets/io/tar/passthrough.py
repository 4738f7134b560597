"""Passthrough columns of a shard: their types from all documents, and arrays of the cells of some documents."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from interleaved_assets.io.archive.index import shortened
from interleaved_assets.io.tar.estimates import MAX_NULL_BYTES, null_type_bytes
from interleaved_assets.io.tar.json_columns import (
    JSON_TYPE,
    MAX_FIELDS,
    FieldRoom,
    Shape,
    array_of,
    is_json,
    struct_fields,
)
from interleaved_assets.io.tar.layout import UNREFERENCED_MEMBERS
from interleaved_assets.model.columns import RESERVED_COLUMNS
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA

logger = logging.getLogger(__name__)

# Types that hold all values of the types in the set.
_WIDER: Final = {
    pa.int64(): {pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()},
    pa.float64(): {pa.float16(), pa.float32(), pa.float64()},
    pa.large_string(): {pa.string(), pa.large_string(), pa.string_view()},
}
_ENOUGH_STATED: Final = 1 + max(map(len, _WIDER.values()))
"""Number of types kept for one column: no type holds all values of so many."""


_OWN: Final = RESERVED_COLUMNS | {UNREFERENCED_MEMBERS}


class ColumnTypes:
    """The columns that documents state, with one type for each.

    Args:
        columns: the only columns wanted, in this order; None for all.
        types: types that a reader wishes; a column gets its type if no value is lost by it.

    Attributes:
        seen: names of the columns that some document has a field for, null or not, wanted or not.
    """

    def __init__(self, columns: Sequence[str] | None = None, types: Mapping[str, pa.DataType] | None = None) -> None:
        self.seen: set[str] = set()
        self._only = None if columns is None else frozenset(columns)
        self._room = FieldRoom()
        self._shapes: dict[str, Shape] = {name: Shape(self._room) for name in columns or ()}
        self._stated: dict[str, list[pa.DataType]] = {}
        self._stated_fields = self._stated_bytes = 0
        self._unfit: dict[str, bool] = {}  # columns that fit no stated type, and whether that is logged
        self._reserved: dict[str, pa.DataType] = {}
        self._order: list[str] = []
        self._wished = dict(types or {})

    def observe(self, column: str, values: Iterable[Any]) -> None:
        """Include JSON values of ``column``, if it is wanted, in its type."""
        if self._only is not None and column not in self._only:
            return
        shape = self._shapes.setdefault(column, Shape(self._room))
        for value in values:
            shape.observe(value)

    def excess_with(self, columns: set[str], stated: Iterable[pa.Schema], max_columns: int) -> str | None:
        """Return the limit that ``columns``, and types ``stated`` for them, would exceed; None if they exceed none."""
        wanted = columns if self._only is None else columns & self._only
        if len(self._shapes) + sum(name not in self._shapes for name in wanted - RESERVED_COLUMNS) > max_columns:
            return f"more columns, over max_columns {max_columns}"
        new = {(column.name, column.type) for schema in stated for column in schema if self._is_new(column)}
        if self._stated_fields + sum(struct_fields(dtype) for _, dtype in new) > MAX_FIELDS:
            return f"more fields in structs than {MAX_FIELDS}"
        if self._stated_bytes + sum(null_type_bytes(dtype) for _, dtype in new) > MAX_NULL_BYTES:
            return f"columns that take more than {MAX_NULL_BYTES} bytes for each null"
        return None

    def _is_new(self, column: pa.Field) -> bool:
        is_wanted = column.name not in _OWN if self._only is None else column.name in self._only
        return is_wanted and self._is_another(column)

    def _is_another(self, column: pa.Field) -> bool:
        """Return whether no equal type was stated for the column.

        Equal types may have different hashes: names of list items do not count, and are ``item`` in memory and
        ``element`` in Parquet.
        """
        stated = self._stated.get(column.name, ())
        return len(stated) < _ENOUGH_STATED and column.type not in stated

    def state_schema(self, schema: pa.Schema, *, ordered: bool = True) -> None:
        """Include the columns that a tar, or the cells of a sample, state.

        Args:
            schema: the columns.
            ordered: also take over the order of the columns, and the types of reserved ones.
        """
        self.seen.update(schema.names)
        for column in schema:
            if column.name in RESERVED_COLUMNS:
                if ordered:
                    self._reserved.setdefault(column.name, column.type)
            elif self._only is None or column.name in self._only:
                fields = struct_fields(column.type)
                self._shapes.setdefault(column.name, Shape(FieldRoom(fields)))
                if self._is_new(column):
                    self._stated_fields += fields
                    self._stated_bytes += null_type_bytes(column.type)
                if self._is_another(column):
                    self._stated.setdefault(column.name, []).append(column.type)
        if ordered and not self._order:
            self._order = schema.names

    def schema(self) -> pa.Schema:
        """Return all columns: reserved ones, then the others in order of appearance or as a tar states it."""
        columns = {
            column.name: column.with_type(self._reserved.get(column.name, column.type)) for column in INTERLEAVED_SCHEMA
        }
        for name, shape in self._shapes.items():
            columns[name] = pa.field(name, self._type_of(name, shape))
        if unlogged := [name for name, is_logged in self._unfit.items() if not is_logged]:
            what = "do not fit the types that documents state, so they are kept as JSON"
            logger.warning("the values of %d columns %s; the first is %r", len(unlogged), what, shortened(unlogged[0]))
            self._unfit = dict.fromkeys(self._unfit, True)
        order = [name for name in self._order if name in columns] if self._only is None else []
        return pa.schema([columns[name] for name in dict.fromkeys([*order, *columns])])

    def _type_of(self, column: str, shape: Shape) -> pa.DataType:
        stated = self._stated.get(column, [])
        wished = self._wished.get(column)
        if wished is not None and (is_json(wished) or (shape.fits(wished) and stated in ([], [wished]))):
            return wished
        if not stated:
            return shape.dtype() or JSON_TYPE
        if len(stated) == 1 and (is_json(stated[0]) or shape.fits(stated[0])):
            return stated[0]
        for wide, narrower in _WIDER.items():
            if shape.fits(wide) and all(dtype in narrower for dtype in stated):
                return wide
        self._unfit.setdefault(column, False)
        return JSON_TYPE


_MANY_NULLS: Final = 16
"""Rows for each cell of a column from which on nulls are stored before they are distributed, which copies the cells."""


class ColumnCells:
    """Cells of one column, collected in any order, and the array that they make."""

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._rows: list[int] = []
        self._exact: list[tuple[np.ndarray, pa.Array]] = []

    def add(self, row: int, value: Any) -> None:
        """Put a JSON value, or None for null, into ``row``."""
        if value is not None:
            self._rows.append(row)
            self._values.append(value)

    def add_array(self, first_row: int, cells: pa.ChunkedArray) -> None:
        """Put the cells that are not null into the rows from ``first_row`` on."""
        rows = np.flatnonzero(np.asarray(cells.is_valid(), dtype=bool))
        if len(rows):
            # combine_chunks copies, even if there is one chunk
            array = cells.chunk(0) if cells.num_chunks == 1 else cells.combine_chunks()
            valid = array if len(rows) == len(array) else array.take(pa.array(rows))
            self._exact.append((rows + first_row, valid))

    def array(self, rows: int, dtype: pa.DataType) -> pa.Array:
        """Return the column with this number of ``rows``, null in rows without a cell."""
        if not self._rows and not self._exact:
            return pa.nulls(rows, dtype)
        pieces = [_converted(cells, dtype) for _, cells in self._exact]
        if self._rows:
            pieces.insert(0, array_of(self._values, dtype))
        where = np.concatenate([np.array(self._rows, np.int64), *(at for at, _ in self._exact)])
        indices = np.full(rows, -1, np.int64)
        indices[where] = np.arange(len(where))
        if rows > _MANY_NULLS * len(where):
            # take() reserves the mean length of the values for each index: nulls among the values keep that low
            indices[indices < 0] = len(where)
            pieces.append(pa.nulls(rows - len(where), dtype))
        cells = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
        return cells.take(pa.array(indices, mask=indices < 0))


def _converted(cells: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return cells of an exact type as an array of the column's type, which differs only if several types share it."""
    if cells.type == dtype:
        return cells
    if not is_json(dtype):
        return cells.cast(dtype)
    if is_json(cells.type):
        return pa.array(cells.to_pylist(), dtype)
    texts: Sequence[str] = [json.dumps(cell, ensure_ascii=False, default=str) for cell in cells.to_pylist()]
    return pa.array(texts, dtype)
