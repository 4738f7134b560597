"""The number of bytes that values of any Arrow type take."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def has_byte_length(dtype: pa.DataType) -> bool:
    """Return whether the type is strings or bytes, whose values differ in length."""
    return (
        pa.types.is_string(dtype)
        or pa.types.is_large_string(dtype)
        or pa.types.is_binary(dtype)
        or pa.types.is_large_binary(dtype)
    )


def value_bytes(array: Any) -> np.ndarray | float:
    """Return roughly the bytes of each value of an Arrow array, float64, as if no two values shared any.

    Offsets and validity do not count. The result is one number if all values have the same size, since an array may
    have any number of nulls. Dictionaries, views, list views and unions may repeat one value any number of times, and
    lists of them may multiply this, so that a sum may be beyond all integers.
    """
    types, dtype = pa.types, array.type
    if isinstance(array, pa.ExtensionArray):
        return value_bytes(array.storage)
    if types.is_dictionary(dtype):
        return _picked(value_bytes(array.dictionary), array)
    if types.is_union(dtype):
        return sum(_largest(value_bytes(array.field(number))) for number in range(dtype.num_fields))
    if types.is_struct(dtype):
        return sum((value_bytes(array.field(number)) for number in range(dtype.num_fields)), start=np.float64(0))
    if types.is_fixed_size_list(dtype):
        # a null list has values as well, of unknown size
        return dtype.list_size * _largest(value_bytes(array.values))
    if hasattr(array, "offsets") and hasattr(array, "values"):
        starts = np.asarray(array.offsets, np.int64)
        if hasattr(array, "sizes"):
            ends = starts + np.asarray(array.sizes, np.int64)
        else:
            starts, ends = starts[:-1], starts[1:]
        return _ranges(value_bytes(array.values), starts, ends)
    if types.is_string_view(dtype) or types.is_binary_view(dtype):
        # a view begins with its length, and takes 16 bytes
        lengths = np.frombuffer(array.buffers()[1], "<i4", 4 * len(array), 16 * array.offset)[::4]
        return np.where(np.asarray(array.is_valid()), lengths, 0).astype(np.float64)
    if has_byte_length(dtype):
        return np.asarray(pc.binary_length(array).fill_null(0), np.float64)
    return 0.0 if types.is_null(dtype) else dtype.bit_width / 8


def _picked(sizes: np.ndarray | float, array: pa.DictionaryArray) -> np.ndarray | float:
    if isinstance(sizes, np.ndarray) and sizes.ndim:
        found = np.asarray(array.indices.fill_null(0), np.int64)
        return np.where(np.asarray(array.is_valid()), sizes[found], 0) if len(sizes) else np.zeros(len(found))
    return sizes


def _largest(sizes: np.ndarray | float) -> float:
    return float(np.max(sizes, initial=0))


def _ranges(sizes: np.ndarray | float, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    if isinstance(sizes, np.ndarray) and sizes.ndim:
        filled = np.concatenate([[0], np.cumsum(sizes)])
        return filled[ends] - filled[starts]
    return (ends - starts) * np.float64(sizes)
