"""Every valid batch is unchanged after writing to tar and reading, and then to Parquet."""

import datetime
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interleaved_assets.io.parquet.reader import read_parquet_shard
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.tar.json_columns import JSON_TYPE
from interleaved_assets.io.tar.reader import InterleavedWebdatasetReader, read_tar_shard
from interleaved_assets.io.tar.writer import tar_shard
from interleaved_assets.model.batch import InterleavedBatch
from interleaved_assets.model.casting import plain_type
from interleaved_assets.model.errors import OptionError
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets_tests.io.batches_strategy import batches
from interleaved_assets_tests.io.row_tables import rows_table, sample
from interleaved_assets_tests.io.tars import members_of, write_tar


def canonical(table: pa.Table) -> pa.Table:
    """Samples by their first row, metadata first, then by position, texts before images."""
    samples = table["sample_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    ranks = np.array(
        [("metadata", "text", "image", "table", "audio").index(name) for name in table["modality"].to_pylist()]
    )
    return table.take(pa.array(np.lexsort((ranks, table["position"].to_numpy(), samples))))


def without_dictionaries(table: pa.Table) -> pa.Table:
    """Columns as they come back: how a column is encoded in memory is no part of its type."""
    encoded = (pa.types.is_dictionary(column.type) for column in table.columns)
    columns = [
        column.cast(column.type.value_type) if is_encoded else column
        for column, is_encoded in zip(table.columns, encoded, strict=True)
    ]
    return pa.table(columns, names=table.column_names)


def cells(table: pa.Table) -> dict[str, str]:
    """Every cell as text that tells NaN, -0.0 and 0.0, 1 and True apart."""
    return {name: repr(table[name].to_pylist()) for name in table.column_names if name != "source_ref"}


def types(table: pa.Table) -> list[tuple[str, pa.DataType]]:
    return [(column.name, column.type) for column in table.schema]


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    # a reader gives all reserved columns, those that the batch did not have as well
    extra = [name for name in INTERLEAVED_SCHEMA.names if name not in expected.column_names]
    found = canonical(found.drop_columns([name for name in extra if name in found.column_names]))
    assert types(found) == types(expected)
    assert cells(found) == cells(expected)


@given(batches())
def test_batch_to_tar_to_batch_to_parquet_to_batch(table: pa.Table) -> None:
    assert InterleavedBatch(table).validate()
    expected = canonical(without_dictionaries(table))
    with tempfile.TemporaryDirectory() as folder:
        uri, parquet = str(Path(folder, "a.tar")), str(Path(folder, "a.parquet"))
        with tar_shard(uri) as shard:
            shard.write(table)
        (back,) = read_tar_shard(uri, materialize=True)
        assert back.schema.field("source_ref").type in (pa.string(), pa.large_string())
        assert_same(back, expected)
        with parquet_shard(parquet, back.schema) as shard:
            shard.write(back)
        (again,) = read_parquet_shard(parquet)
        assert_same(again, expected)


def test_tars_that_state_other_types_share_a_partition(tmp_path: Path) -> None:
    when = datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC)
    for name, values in {
        "a": {"x": pa.array([when], pa.timestamp("us", "UTC")), "y": pa.array([float("inf")], pa.float32())},
        "b": {"x": pa.array([b"bytes"]), "y": pa.array([2.5], pa.float32())},
        "c": {"x": pa.array([1]), "y": pa.array([0.1])},
    }.items():
        with tar_shard(str(tmp_path / f"{name}.tar")) as shard:
            shard.write(rows_table(sample(name), **values))
    (batch,) = InterleavedWebdatasetReader(tmp_path, files_per_partition=3)
    table = batch.to_pyarrow()
    assert (table.schema.field("x").type, table.schema.field("y").type) == (JSON_TYPE, pa.float64())
    assert table["x"].to_pylist() == ['"2024-05-01 00:00:00+00:00"', "\"b'bytes'\"", "1"]
    assert table["y"].to_pylist() == [float("inf"), 2.5, 0.1]
    (first, *_) = InterleavedWebdatasetReader(tmp_path)
    assert first.to_pyarrow().schema.field("x").type == pa.timestamp("us", "UTC")


def test_a_document_moved_to_another_tar_keeps_its_cells(tmp_path: Path) -> None:
    rows = [*sample("a"), *sample("b")]
    table = rows_table(
        rows, x=pa.array([1, 2], pa.duration("ms")), y=pa.array([1, 2], pa.int8()), z=pa.array([None, 1.0])
    )
    with tar_shard(str(tmp_path / "a.tar")) as shard:
        shard.write(table)
    members = members_of(tmp_path / "a.tar")
    moved = write_tar(tmp_path / "b.tar", ("b.json", members["b.json"]))
    (found,) = read_tar_shard(moved)
    # only what the first document said for the whole tar is gone: that y was small
    assert types(found)[-3:] == [("y", pa.int64()), ("z", pa.float64()), ("x", pa.duration("ms"))]
    assert found.select(["x", "y", "z"]).to_pylist() == table.slice(1).select(["x", "y", "z"]).to_pylist()


ODD_PARTS = [
    "a",
    "é",
    "\U0001f600",
    "%",
    "/",
    ".",
    "./",
    "../",
    "\n",
    "\0",
    " ",
    "\\",
    "'",
    "CON",
    ".json",
    "~2",
    "\u202e",
]
TIMES = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.date64(), pa.timestamp("ns")]


@settings(max_examples=25, deadline=None)
@given(
    ids=st.lists(
        st.builds(
            lambda parts, times: "".join(parts) * times,
            st.lists(st.sampled_from(ODD_PARTS), min_size=1, max_size=4),
            st.sampled_from([1, 1, 1, 2, 30, 100, 300, 100_000, 400_000]),
        ),
        min_size=1,
        max_size=3,
        unique=True,
    ),
    dtype=st.sampled_from(TIMES),
    number=st.integers(-(2**31), 2**31 - 1),
)
def test_what_the_writer_accepts_comes_back(ids: list[str], dtype: pa.DataType, number: int) -> None:
    """Ids of any characters and length, and values of times that may be none: refused, or the same again."""
    raw = pa.array([number] * len(ids), pa.int32() if dtype.bit_width == 32 else pa.int64())
    cells = rows_table([{"sample_id": name, "position": 0, "modality": "text", "text_content": "t"} for name in ids])
    table = cells.append_column("when", raw.view(dtype))
    with tempfile.TemporaryDirectory() as folder:
        uri = str(Path(folder, "a.tar"))
        try:
            with tar_shard(uri) as shard:
                shard.write(table)
        except OptionError:
            return
        (back,) = read_tar_shard(uri, materialize=True)
        assert_same(canonical(back), canonical(table))


def test_lists_come_back_as_lists_whatever_their_items_are_called(tmp_path: Path) -> None:
    # the items of lists are called "item" in memory and "element" in Parquet, which is no other type
    values = [["u"], [], ["v"]]
    wanted = pa.list_(pa.string())
    rows = pa.table(
        {
            "sample_id": ["a", "a", "b"],
            "position": pa.array([-1, 0, 0], pa.int32()),
            "modality": ["metadata", "text", "text"],
            "text_content": [None, "x", "y"],
            "tags": pa.chunked_array([pa.array(values, pa.list_(pa.field("element", pa.string())))], wanted),
            # not in the first document, which therefore states the types of all columns
            "later": pa.array([None, None, 1], pa.int8()),
        }
    )
    with tar_shard(str(tmp_path / "a.tar")) as tar:
        tar.write(rows)
    (found,) = read_tar_shard(str(tmp_path / "a.tar"))
    assert (found["tags"].type, found["tags"].to_pylist()) == (wanted, values)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["ab", None, "c" * 40], pa.string_view()),
        pa.array([{"q": "a"}, None, {"q": None}], pa.struct([("q", pa.string_view())])),
        pa.array([["a"], None, []], pa.list_view(pa.string())),
        pa.DictionaryArray.from_arrays([0, None, 0], pa.array(["a"], pa.string_view())),
    ],
    ids=lambda column: str(column.type),
)
def test_a_tar_takes_columns_of_views(column: pa.Array, tmp_path: Path) -> None:
    # as in what pa.table makes of a polars DataFrame
    rows = [{"sample_id": letter, "position": -1, "modality": "metadata"} for letter in "aba"]
    rows[2] = {"sample_id": "a", "position": 0, "modality": "text", "text_content": "x"}
    table = rows_table(rows, extra=column)
    with tar_shard(str(tmp_path / "a.tar")) as tar:
        tar.write(table)
    (found,) = read_tar_shard(str(tmp_path / "a.tar"))
    order = [0, 2, 1]
    assert found["extra"].type == plain_type(column.type)
    assert found["extra"].to_pylist() == [column.to_pylist()[row] for row in order]
