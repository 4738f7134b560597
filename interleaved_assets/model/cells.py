"""Cells of any Arrow type as Python values, with text for values that Python cannot hold.

``to_pylist`` raises for a whole column if one cell has a date beyond the year 9999, a time zone that this machine does
not know, or a struct with two fields of one name. Parquet files from other programs have such columns.
"""

from typing import Any, Final

import pyarrow as pa

_NO_PYTHON_VALUE: Final = (OverflowError, ValueError, KeyError)
"""Errors of dates and durations out of range, of repeated names, and of unknown time zones, which raise KeyError."""


def cell_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Return ``column.to_pylist()``, with the text that Arrow shows for each value that Python cannot hold.

    A struct or map with such a value is a list of (name, value) pairs.
    """
    try:
        return list(column.to_pylist())
    except _NO_PYTHON_VALUE:
        return [_value(cell) for cell in column]


def row_values(table: pa.Table) -> list[dict[str, Any]]:
    """Return ``table.to_pylist()``, with the cells of :func:`cell_values`."""
    columns = [cell_values(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _value(cell: pa.Scalar) -> Any:
    try:
        return cell.as_py()
    except _NO_PYTHON_VALUE:
        if isinstance(cell, pa.DictionaryScalar | pa.ExtensionScalar):
            return _value(cell.value)
        if isinstance(cell, pa.ListScalar):  # a map has entries, which are structs
            return [_value(item) for item in cell.values]
        if isinstance(cell, pa.StructScalar):
            return [(field.name, _value(cell[place])) for place, field in enumerate(cell.type)]
        return pa.array([cell], cell.type).to_string(skip_new_lines=True)[1:-1]
