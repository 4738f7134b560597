"""Fields of the documents: columns that readers pass through, and fields within columns of structs or JSON, by path."""

import json
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_LONG_DIGITS: Final = 19
"""Digits of a whole number that may be beyond 64 bits."""


def root_of(names: Sequence[str], path: str) -> str | None:
    """Return the column that the field is in; None if no column of ``names`` begins its path."""
    parts = path.split(".")
    candidates = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((name for name in candidates if name in names), None)


def field_values(rows: pa.Table, path: str) -> pa.ChunkedArray | None:
    """Return the values of the field at ``path``, null where a row lacks it; None if the table does.

    A path leads into structs, and into JSON, which a column is whose objects have different keys. There the values are
    numbers if all are, and else strings.
    """
    root = root_of(rows.column_names, path)
    if root is None:
        return None
    values = rows[root]
    rest = path.removeprefix(root).lstrip(".")
    names = rest.split(".") if rest else []
    for place, name in enumerate(names):
        if isinstance(values.type, pa.JsonType):
            return _from_json(values, names[place:])
        if not pa.types.is_struct(values.type) or values.type.get_field_index(name) < 0:
            return None
        values = pc.struct_field(values, name)
    return _from_json(values, []) if isinstance(values.type, pa.JsonType) else values


def _from_json(values: pa.ChunkedArray, names: Sequence[str]) -> pa.ChunkedArray:
    texts = values.to_pylist()
    found = [None if text is None else _at(json.loads(text, parse_int=_whole), names) for text in texts]
    kinds = {type(one) for one in found if one is not None}
    if kinds and kinds <= {int, float}:
        return pa.chunked_array([pa.array(found, pa.float64() if float in kinds else pa.int64())])
    texts = [one if one is None or isinstance(one, str) else json.dumps(one) for one in found]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _whole(digits: str) -> int | float:
    """Return a whole number of JSON; a float for one that may be too long for 64 bits."""
    return int(digits) if len(digits) < _LONG_DIGITS else float(digits)


def _at(value: Any, names: Sequence[str]) -> Any:
    """Return what is at a path of keys; None if nothing is."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def absent_field(schema: pa.Schema, path: str) -> str | None:
    """Return in words that documents of this schema have no field at ``path``, with a similar one; None if they may."""
    types = dict(found for field in schema for found in _types(field, ""))
    # the schema does not have the keys of JSON
    if path in types or any(isinstance(types[one], pa.JsonType) and path.startswith(f"{one}.") for one in types):
        return None
    close = get_close_matches(path, types, n=1)
    return f"no document has the field {path!r}" + (f"; did you mean {close[0]}" if close else "")


def _types(field: pa.Field, parent: str) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the path and type of a field, and those of the fields in it."""
    path = f"{parent}{field.name}"
    yield path, field.type
    if pa.types.is_struct(field.type):
        for inner in field.type:
            yield from _types(inner, f"{path}.")
