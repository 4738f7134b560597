"""Splitting and joining tables at sample borders."""

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.io.rows import batches
from interleaved_assets.io.rows.batches import (
    are_adjacent,
    binary_column,
    binary_views,
    gathered,
    join_files,
    prefetch,
    row_bytes,
    sample_starts,
    split_samples,
    whole_samples,
)
from interleaved_assets_tests.defects import stand_in
from interleaved_assets_tests.io.row_tables import image_bytes, rows_table, sample


def table_of(ids: str, sizes: list[int] | None = None) -> pa.Table:
    sizes = sizes or [10] * len(ids)
    return rows_table(
        [
            {"sample_id": letter, "binary_content": image_bytes(number, size)}
            for number, (letter, size) in enumerate(zip(ids, sizes, strict=True))
        ]
    )


def ids(table: pa.Table) -> str:
    return "".join(table["sample_id"].to_pylist())


def addresses(column: pa.ChunkedArray) -> set[int]:
    return {chunk.buffers()[2].address for chunk in column.chunks}


# ---------------------------------------------------------------- binary_column


@given(st.lists(st.none() | st.lists(st.binary(max_size=9), max_size=3), max_size=9))
def test_a_binary_column_joins_the_parts_of_each_row(rows: list[list[bytes] | None]) -> None:
    column = binary_column(rows)
    column.validate(full=True)
    assert column.type == pa.large_binary()
    assert column.to_pylist() == [None if parts is None else b"".join(parts) for parts in rows]


def test_a_binary_column_takes_views() -> None:
    assert binary_column([[memoryview(b"abc")[1:], bytearray(b"d")]]).to_pylist() == [b"bcd"]


# ---------------------------------------------------------------- splitting


# of six string columns and of the images, which are large_binary
OFFSETS = 6 * 4 + 8


@pytest.mark.parametrize("dtype", [pa.binary(), pa.large_binary(), pa.dictionary(pa.int32(), pa.large_binary())])
def test_views_of_a_binary_column_are_its_values_and_no_copies(dtype: pa.DataType) -> None:
    values = [b"one", None, b"", b"three"]
    plain = pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype)
    array = pa.array(values, dtype) if plain else pa.array(values, pa.large_binary()).dictionary_encode()
    column = pa.chunked_array([array.slice(1), array.slice(0, 0), array])
    found = binary_views(column)
    assert [None if view is None else bytes(view) for view in found] == [*values[1:], *values]
    if plain:
        data = memoryview(array.buffers()[2])
        assert all(view is None or view.obj is not None for view in found)
        assert np.frombuffer(found[-1], np.uint8).ctypes.data - np.frombuffer(data, np.uint8).ctypes.data == 3
    assert binary_views(pa.chunked_array([], pa.large_binary())) == []
    assert binary_views(pa.chunked_array([pa.nulls(2, pa.large_binary())])) == [None, None]


def test_row_bytes_of_each_column_type() -> None:
    table = rows_table([{"sample_id": "ab", "text_content": "äx", "binary_content": b"12345"}, {"sample_id": "c"}])
    assert (row_bytes(table) - row_bytes(table.select(["position"]))).tolist() == [
        OFFSETS + 2 + 3 + 5 + len("image"),
        OFFSETS + 1 + len("image"),
    ]
    assert row_bytes(table.slice(0, 0)).tolist() == []


def test_sample_starts_finds_runs_of_equal_ids() -> None:
    table = pa.concat_tables([table_of("aab"), table_of("bcca")])
    assert sample_starts(table["sample_id"]).tolist() == [0, 2, 4, 6]
    assert not are_adjacent(table["sample_id"])
    assert are_adjacent(table_of("aabbc")["sample_id"])
    assert sample_starts(table["sample_id"].slice(0, 0)).tolist() == []


def test_a_table_is_cut_between_samples() -> None:
    table = table_of("aabbbcd", [1000] * 7)
    parts = list(split_samples(table, 2300))
    # b alone is larger than the limit and still whole
    assert [ids(part) for part in parts] == ["aa", "bbb", "cd"]
    assert addresses(parts[1]["binary_content"]) == addresses(table["binary_content"])
    assert [ids(part) for part in split_samples(table, None)] == ["aabbbcd"]
    assert [ids(part) for part in split_samples(table, 1)] == ["aa", "bbb", "c", "d"]
    assert list(split_samples(table.slice(0, 0), 100)) == []


def test_sizes_may_be_given() -> None:
    parts = split_samples(table_of("abcd"), 10, np.array([6, 4, 1, 10]))
    assert [ids(part) for part in parts] == ["ab", "c", "d"]


samples = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 300)), min_size=1, max_size=12)


@given(samples, st.lists(st.integers(0, 40), max_size=6), st.integers(1, 1500))
def test_parts_do_not_depend_on_how_tables_are_split(shape, cuts: list[int], limit: int) -> None:
    letters = "".join(chr(97 + number) * rows for number, (rows, _) in enumerate(shape))
    sizes = [size for rows, size in shape for _ in range(rows)]
    table = table_of(letters, sizes)
    borders = [0, *sorted(min(cut, table.num_rows) for cut in cuts), table.num_rows]
    pieces = [table.slice(a, b - a) for a, b in itertools.pairwise(borders)]
    parts = list(whole_samples(pieces, limit))
    assert pa.concat_tables(parts) == table
    assert [ids(part) for part in parts] == [ids(part) for part in split_samples(table, limit)]
    for before, after in itertools.pairwise(parts):
        assert not set(ids(before)) & set(ids(after))
    for part in parts:
        assert row_bytes(part).sum() <= limit or len(set(ids(part))) == 1


@pytest.mark.parametrize("letters", ["abcdefghij" * 10, "a" * 100], ids=["samples", "one sample"])
def test_small_tables_are_split_once_for_each_part(letters: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of("".join(sorted(letters)))
    limit = int(row_bytes(table).sum()) // 4
    splits: list[int] = []

    def split(whole: pa.Table, *given: int) -> Iterator[pa.Table]:
        splits.append(whole.num_rows)
        return split_samples(whole, *given)

    stand_in(monkeypatch, batches, "split_samples", split)
    parts = list(whole_samples([table.slice(row, 1) for row in range(100)], limit))
    assert pa.concat_tables(parts) == table
    assert len(splits) <= 6


def test_without_a_limit_there_is_one_part() -> None:
    assert [ids(part) for part in whole_samples([table_of("ab"), table_of("bc")], None)] == ["abbc"]
    assert list(whole_samples([table_of("")], None)) == []


# ---------------------------------------------------------------- join_files


def test_files_share_batches_as_long_as_they_fit() -> None:
    files = [("f1", [table_of("a"), table_of("b")]), ("f2", [table_of("c")]), ("f3", []), ("f4", [table_of("d")])]
    assert [(ids(table), sources) for table, sources in join_files(files, None)] == [("abcd", ("f1", "f2", "f4"))]
    limit = int(row_bytes(table_of("ab")).sum())
    assert [(ids(table), sources) for table, sources in join_files(files, limit)] == [
        ("ab", ("f1",)),
        ("cd", ("f2", "f4")),
    ]


def test_equal_ids_of_different_files_never_share_a_batch() -> None:
    files = [("f1", [table_of("ab")]), ("f2", [table_of("bc")]), ("f3", [table_of("d")])]
    assert [(ids(table), sources) for table, sources in join_files(files, None)] == [
        ("ab", ("f1",)),
        ("bcd", ("f2", "f3")),
    ]


def test_files_of_different_columns_join_with_nulls() -> None:
    first = table_of("a").append_column("x", pa.array([1]))
    second = table_of("b").append_column("y", pa.array(["z"]))
    ((table, _),) = join_files([("f1", [first]), ("f2", [second])], None)
    assert table["x"].to_pylist() == [1, None]
    assert table["y"].to_pylist() == [None, "z"]


# ---------------------------------------------------------------- prefetch


def test_prefetched_items_come_in_order_from_another_thread() -> None:
    def numbers() -> Iterator[tuple[int, int]]:
        for number in range(20):
            yield number, threading.get_ident()

    items = list(prefetch(numbers(), depth=3))
    assert [number for number, _ in items] == list(range(20))
    assert {thread for _, thread in items} == {items[0][1]} != {threading.get_ident()}


def test_prefetch_holds_at_most_one_item() -> None:
    made: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(10):
            made.append(number)
            yield number

    for number in prefetch(numbers()):
        time.sleep(0.01)
        assert len(made) <= number + 2
    assert made == list(range(10))


def test_prefetch_raises_an_exception_in_its_place() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise KeyError("in the middle")

    ahead = prefetch(numbers())
    assert next(ahead) == 1
    with pytest.raises(KeyError, match="in the middle"):
        next(ahead)
    assert list(ahead) == []


def test_closing_prefetch_closes_the_source_and_ends_the_thread() -> None:
    closed = threading.Event()

    def numbers() -> Iterator[int]:
        try:
            yield from range(1000)
        finally:
            closed.set()

    before = threading.active_count()
    ahead = prefetch(numbers())
    assert next(ahead) == 0
    ahead.close()
    assert closed.wait(60)
    deadline = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


def test_closing_prefetch_does_not_wait_for_the_current_item() -> None:
    begun, go_on, gone_on = threading.Event(), threading.Event(), threading.Event()

    def numbers() -> Iterator[int]:
        yield 0
        begun.set()
        go_on.wait(60)
        gone_on.set()
        yield 1

    ahead = prefetch(numbers())
    assert next(ahead) == 0
    assert begun.wait(60)
    ahead.close()
    assert not gone_on.is_set()
    go_on.set()


def test_an_unclosed_generator_does_not_delay_interpreter_exit() -> None:
    program = """
from interleaved_assets.io.rows.batches import prefetch
def numbers():
    yield from range(1000)
left_behind = prefetch(numbers())
assert next(left_behind) == 0
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert run.stderr == ""


def test_a_generator_may_be_closed_by_its_own_worker() -> None:
    holder: dict[str, object] = {}

    def closing_its_consumer() -> Iterator[int]:
        yield 0
        holder.clear()  # the last reference, dropped in the worker's thread
        yield 1

    holder["ahead"] = prefetch(closing_its_consumer())
    assert next(holder["ahead"]) == 0
    deadline = time.monotonic() + 60
    while holder and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not holder


def test_rows_of_a_sample_are_gathered() -> None:
    table = table_of("abacb", [5, 6, 7, 8, 9])
    found = gathered(table)
    assert ids(found) == "aabbc"
    assert [len(value) for value in found["binary_content"].to_pylist()] == [5, 7, 6, 9, 8]
    assert gathered(found) is found


def test_helper_makes_samples_of_the_given_sizes() -> None:
    table = rows_table(sample("a", b"1", None))
    assert table["position"].to_pylist() == [-1, 0, 1, 2, 3]
    assert table["binary_content"].to_pylist() == [None, None, b"1", None, None]
