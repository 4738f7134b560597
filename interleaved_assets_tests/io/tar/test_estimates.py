"""What values take that share bytes, and documents that hold such values."""

import base64
import struct
from pathlib import Path

import pyarrow as pa
import pytest

from interleaved_assets.io.tar.estimates import unshared_bytes
from interleaved_assets_tests.io.tars import rows, write_tar

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
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([COUNT], pa.int32()), TEXT),
    "dense union": pa.UnionArray.from_dense(pa.array([0] * COUNT, pa.int8()), ZEROS, [TEXT]),
}


@pytest.mark.parametrize("values", SHARING.values(), ids=SHARING)
def test_a_shared_value_counts_each_time(values: pa.Array) -> None:
    assert unshared_bytes(pa.table({"c": values})) == COUNT * BYTES


def test_values_of_their_own() -> None:
    table = pa.table(
        {
            "numbers": pa.array([1, None, 3], pa.int32()),
            "texts": ["a", None, "bcd"],
            "lists": pa.array([[1, 2], [], [3]], pa.list_(pa.int64())),
            "fixed": pa.array([[1, 2]] * 3, pa.list_(pa.int16(), 2)),
            "maps": pa.array([[("k", 1)], [], []], pa.map_(pa.string(), pa.int64())),
            "nulls": pa.nulls(3),
        }
    )
    assert unshared_bytes(table) == 12 + 4 + 24 + 12 + 9


@pytest.mark.parametrize("name", ["dictionary", "list view", "view"])
def test_a_document_whose_values_share_bytes_is_held_to_the_limit(tmp_path: Path, name: str) -> None:
    cells = pa.table(
        {
            "position": pa.array([-1, *range(COUNT - 1)], pa.int32()),
            "modality": ["metadata"] + ["text"] * (COUNT - 1),
            "c": SHARING[name],
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, cells.schema) as stream:
        stream.write_table(cells)
    stated = {"version": 1, "rows": base64.b64encode(sink.getvalue()).decode()}
    body = {"texts": ["t"] * (COUNT - 1), "images": [None] * (COUNT - 1), "_interleaved": stated}
    uri = write_tar(tmp_path / "a.tar", ("a.json", body))
    (row,) = rows(uri, max_sample_bytes=3_000_000)
    assert row["materialize_error"].startswith(f"document_too_large: {COUNT} rows of about 5")
    assert [row["materialize_error"] for row in rows(uri)] == [None] * COUNT
