"""Values that take few bytes because they share them: what they take once each has its own."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def unshared_bytes(table: pa.Table) -> float:
    """Bytes that the values of ``table`` take when no two share any, roughly.

    Dictionaries, views, list views, unions and runs may name one value any number of times, lists of them any number
    of times that, so that the sum may be beyond all integers: a float64.
    """
    total = 0.0
    for column in table.columns:
        for chunk in column.chunks:
            total += float(np.sum(np.broadcast_to(_sizes(chunk), len(chunk))))
    return total


def surplus_bytes(table: pa.Table, written_bytes: int) -> int:
    """What the values of ``table`` take beyond the ``written_bytes`` of the text that it stands in."""
    # beyond any limit, and still an integer
    return int(min(max(0.0, unshared_bytes(table) - written_bytes), 2.0**62))


def _sizes(array: Any) -> np.ndarray | float:
    """Bytes of each value, float64; one number where all are alike, since nulls and runs may be any number of them."""
    types, dtype = pa.types, array.type
    if isinstance(array, pa.ExtensionArray):
        return _sizes(array.storage)
    if types.is_dictionary(dtype):
        return _picked(_sizes(array.dictionary), array.indices)
    if types.is_run_end_encoded(dtype):
        return _largest(_sizes(array.values))
    if types.is_union(dtype):
        return sum(_largest(_sizes(array.field(number))) for number in range(dtype.num_fields))
    if types.is_struct(dtype):
        return sum((_sizes(array.field(number)) for number in range(dtype.num_fields)), start=np.float64(0))
    if types.is_fixed_size_list(dtype):
        # a null one has values as well, of which nothing is known
        return dtype.list_size * _largest(_sizes(array.values))
    if hasattr(array, "offsets") and hasattr(array, "values"):
        starts = np.asarray(array.offsets, np.int64)
        if hasattr(array, "sizes"):
            ends = starts + np.asarray(array.sizes, np.int64)
        else:
            starts, ends = starts[:-1], starts[1:]
        return _ranges(_sizes(array.values), starts, ends)
    if types.is_string_view(dtype) or types.is_binary_view(dtype):
        # a view begins with its length, and takes 16 bytes
        lengths = np.frombuffer(array.buffers()[1], "<i4", 4 * len(array), 16 * array.offset)[::4]
        return np.where(np.asarray(array.is_valid()), lengths, 0).astype(np.float64)
    if types.is_binary(dtype) or types.is_large_binary(dtype) or types.is_string(dtype) or types.is_large_string(dtype):
        return np.asarray(pc.binary_length(array).fill_null(0), np.float64)
    return 0.0 if types.is_null(dtype) else dtype.bit_width / 8


def _picked(sizes: np.ndarray | float, indices: pa.Array) -> np.ndarray | float:
    if isinstance(sizes, np.ndarray) and sizes.ndim:
        found = np.asarray(indices.fill_null(0), np.int64)
        return sizes[found] if len(sizes) else np.zeros(len(found))
    return sizes


def _largest(sizes: np.ndarray | float) -> float:
    return float(np.max(sizes, initial=0))


def _ranges(sizes: np.ndarray | float, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    if isinstance(sizes, np.ndarray) and sizes.ndim:
        filled = np.concatenate([[0], np.cumsum(sizes)])
        return filled[ends] - filled[starts]
    return (ends - starts) * np.float64(sizes)
