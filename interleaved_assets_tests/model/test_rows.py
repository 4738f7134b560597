"""Filtering the rows of a table without copying image bytes."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.model.errors import OptionError
from interleaved_assets.model.rows import filter_rows
from interleaved_assets_tests.io.row_tables import image_bytes, rows_table


def images(ids: str, size: int) -> pa.Table:
    rows = [{"sample_id": letter, "binary_content": image_bytes(number, size)} for number, letter in enumerate(ids)]
    return rows_table(rows)


def addresses(column: pa.ChunkedArray) -> set[int]:
    return {chunk.buffers()[2].address for chunk in column.chunks}


def test_filter_rows_does_not_copy_image_bytes() -> None:
    table = images("aabbccdd", 100_000)
    keep = pa.array([True, True, False, True, False, False, True, True])
    kept = filter_rows(table, keep)
    assert kept == table.filter(keep)
    assert addresses(kept["binary_content"]) == addresses(table["binary_content"])
    assert filter_rows(table, pa.array([True] * 8)) is table
    nothing = filter_rows(table, pa.array([False] * 8))
    assert nothing.num_rows == 0
    assert nothing.schema == table.schema


@given(st.lists(st.booleans(), max_size=30), st.integers(0, 40_000), st.integers(1, 5))
def test_filter_rows_equals_arrow_filter(mask: list[bool], size: int, chunks: int) -> None:
    table = images("x" * len(mask), size)
    table = pa.concat_tables([table.slice(i * len(mask) // chunks, 3) for i in range(chunks)])
    keep = pa.array((mask * 20)[: table.num_rows], pa.bool_())
    assert filter_rows(table, keep) == table.filter(keep)


def test_filter_rows_works_without_image_column() -> None:
    table = pa.table({"sample_id": ["a", "b"]})
    assert filter_rows(table, pa.array([False, True])).to_pydict() == {"sample_id": ["b"]}


@pytest.mark.parametrize("keep", [pa.array([True]), pa.array(["a", "b"]), pa.array([True, None]), pa.array([0, 1]), 5])
def test_filter_rows_refuses_all_but_a_bool_for_each_row(keep: object) -> None:
    with pytest.raises(OptionError, match="filter_rows: mask must be one True or False for each of 2 rows, got"):
        filter_rows(pa.table({"sample_id": ["a", "b"]}), keep)
