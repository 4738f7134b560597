"""Fields of the documents: columns that readers pass through, and fields of columns that are structs, by their path."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

import pyarrow as pa
import pyarrow.compute as pc


def root_of(names: Sequence[str], path: str) -> str | None:
    """Return the column that the field is in; None if no column of ``names`` begins its path."""
    parts = path.split(".")
    candidates = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((name for name in candidates if name in names), None)


def field_values(rows: pa.Table, path: str) -> pa.ChunkedArray | None:
    """Return the values of the field at ``path``, into structs, null where a row lacks it; None if the table does."""
    root = root_of(rows.column_names, path)
    if root is None:
        return None
    values = rows[root]
    rest = path.removeprefix(root).lstrip(".")
    for name in rest.split(".") if rest else ():
        if not pa.types.is_struct(values.type) or values.type.get_field_index(name) < 0:
            return None
        values = pc.struct_field(values, name)
    return values


def absent_field(schema: pa.Schema, path: str) -> str | None:
    """Return in words that documents of this schema have no field at ``path``, with a similar one; None if they do."""
    paths = [found for field in schema for found in _paths(field, "")]
    if path in paths:
        return None
    close = get_close_matches(path, paths, n=1)
    return f"no document has the field {path!r}" + (f"; did you mean {close[0]}" if close else "")


def _paths(field: pa.Field, parent: str) -> Iterator[str]:
    """Yield the path of a field, and those of the fields in it."""
    path = f"{parent}{field.name}"
    yield path
    if pa.types.is_struct(field.type):
        for inner in field.type:
            yield from _paths(inner, f"{path}.")
