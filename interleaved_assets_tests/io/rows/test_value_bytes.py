"""The bytes that values take, also values that share bytes."""

import struct

import numpy as np
import pyarrow as pa
import pytest

from interleaved_assets.io.rows.value_bytes import value_bytes

COUNT, BYTES = 50, 100_000
ZEROS = pa.array([0] * COUNT, pa.int32())
TEXT = pa.array(["x" * BYTES])


def views() -> pa.Array:
    """Views of one text; pyarrow makes each view's own."""
    view = struct.pack("<i4sii", BYTES, b"xxxx", 0, 0) * COUNT
    return pa.Array.from_buffers(pa.string_view(), COUNT, [None, pa.py_buffer(view), TEXT.buffers()[2]])


DICTIONARY = pa.DictionaryArray.from_arrays(ZEROS, TEXT)
SHARING = {
    "dictionary": DICTIONARY,
    "dictionary in a struct": pa.StructArray.from_arrays([DICTIONARY], ["d"]),
    "list of a dictionary": pa.ListArray.from_arrays(pa.array(range(COUNT + 1), pa.int32()), DICTIONARY),
    "list view": pa.ListViewArray.from_arrays(ZEROS, pa.array([1] * COUNT, pa.int32()), TEXT),
    "view": views(),
    "dense union": pa.UnionArray.from_dense(pa.array([0] * COUNT, pa.int8()), ZEROS, [TEXT]),
}


def total(values: pa.Array) -> float:
    return float(np.sum(np.broadcast_to(value_bytes(values), len(values))))


@pytest.mark.parametrize("values", SHARING.values(), ids=SHARING)
def test_a_shared_value_counts_each_time(values: pa.Array) -> None:
    assert total(values) == COUNT * BYTES


def test_values_of_their_own() -> None:
    table = pa.table(
        {
            "numbers": pa.array([1, None, 3], pa.int32()),
            "texts": ["a", None, "bcd"],
            "lists": pa.array([[1, 2], [], [3]], pa.list_(pa.int64())),
            "fixed": pa.array([[1, 2]] * 3, pa.list_(pa.int16(), 2)),
            "maps": pa.array([[("k", 1)], [], []], pa.map_(pa.string(), pa.int64())),
            "nulls": pa.nulls(3),
            "one of few": pa.array([10, 10, 20], pa.int64()).dictionary_encode(),
        }
    )
    assert [total(column.combine_chunks()) for column in table.columns] == [12, 4, 24, 12, 9, 0, 24]
