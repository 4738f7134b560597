"""A filter of the rows of a table that does not copy image bytes."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from interleaved_assets.model.casting import plain_type, with_columns
from interleaved_assets.model.errors import OptionError

# For shorter runs of kept rows, copying the bytes is cheaper than keeping a slice.
_WORTH_A_SLICE_BYTES: Final = 16 * 2**10


def bool_values(mask: Any, count: int, name: str) -> pa.Array | pa.ChunkedArray:
    """Return ``mask`` as an Arrow array of ``count`` bools.

    Raises:
        OptionError: ``mask`` is something else; the message begins with ``name``, the function that it was given to.
    """
    wanted = f"{name}: mask must be one True or False for each of {count} rows, got"
    if isinstance(mask, pa.Array | pa.ChunkedArray):
        array = mask
    elif not hasattr(mask, "__len__"):
        raise OptionError(f"{wanted} {type(mask).__name__}")
    else:
        try:
            # Arrow cannot infer a type from an empty list
            array = pa.array(mask, None if len(mask) else pa.bool_())
        except (ValueError, TypeError, KeyError) as error:
            raise OptionError(f"{wanted} {type(mask).__name__}: {error}") from error
    if len(array) != count or not pa.types.is_boolean(array.type) or array.null_count:
        raise OptionError(f"{wanted} {len(array)} values of type {array.type} with {array.null_count} nulls")
    return array


def filter_rows(table: pa.Table, keep: pa.BooleanArray | pa.ChunkedArray) -> pa.Table:
    """Return the rows where ``keep`` (no nulls) is True, as ``Table.filter`` does, but without copying image bytes.

    If rows are left out, columns that are dictionaries, runs or views become plain.

    Raises:
        OptionError: ``keep`` is not one bool per row.
    """
    mask = np.asarray(bool_values(keep, table.num_rows, "filter_rows"), dtype=bool)
    if mask.all():
        return table
    if any(plain_type(dtype) != dtype for dtype in table.schema.types):
        table = with_columns(table, pa.schema([field.with_type(plain_type(field.type)) for field in table.schema]))
    if "binary_content" not in table.column_names:
        return table.filter(pa.array(mask))
    column = table["binary_content"]
    # False at both ends, so that every run has a start and an end
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]])))
    if column.nbytes < _WORTH_A_SLICE_BYTES * (len(edges) // 2):
        return table.filter(pa.array(mask))
    index = table.column_names.index("binary_content")
    field = table.schema.field(index)
    runs = [chunk for start, end in edges.reshape(-1, 2) for chunk in column.slice(start, end - start).chunks]
    kept = table.remove_column(index).filter(pa.array(mask))
    return kept.add_column(index, field, pa.chunked_array(runs, field.type))
