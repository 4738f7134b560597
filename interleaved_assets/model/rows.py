"""A filter of the rows of a table that does not copy image bytes."""

from typing import Final

import numpy as np
import pyarrow as pa

from interleaved_assets.model.casting import plain_type, with_columns

# For shorter runs of kept rows, copying the bytes is cheaper than keeping a slice.
_WORTH_A_SLICE_BYTES: Final = 16 * 2**10


def filter_rows(table: pa.Table, keep: pa.BooleanArray | pa.ChunkedArray) -> pa.Table:
    """Return the rows where ``keep`` (no nulls) is True, as ``Table.filter`` does, but without copying image bytes.

    If rows are left out, columns that are dictionaries, runs or views become plain.
    """
    mask = np.asarray(keep, dtype=bool)
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
