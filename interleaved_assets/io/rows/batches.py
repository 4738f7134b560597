"""Splits and joins of tables at sample borders, without copying image bytes."""

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.rows.value_bytes import has_byte_length
from interleaved_assets.io.rows.workers import Workers
from interleaved_assets.io.storage.ranges import Content, FileRange
from interleaved_assets.model.casting import concat_unified

T = TypeVar("T")


def binary_column(rows: Sequence[Sequence[Content] | None]) -> pa.Array:
    """Build a ``large_binary`` array: each value is the concatenation of a row's parts, null for None.

    Parts are copied once; ranges of a file are read straight into the array.
    """
    lengths = [sum(map(len, parts)) if parts else 0 for parts in rows]
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    data = pa.allocate_buffer(int(offsets[-1]))
    # numpy releases the GIL while it copies
    target = np.frombuffer(data, np.uint8)
    at = 0
    for parts in rows:
        for part in parts or ():
            length = len(part)
            if isinstance(part, FileRange):
                part.read_into(target[at : at + length])
            else:
                target[at : at + length] = np.frombuffer(part, np.uint8)
            at += length
    valid = np.array([parts is not None for parts in rows], dtype=bool)
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(rows), [bitmap, pa.py_buffer(offsets), data])


def binary_views(column: pa.ChunkedArray) -> list[memoryview | None]:
    """Return the bytes of each value of a column of bytes as a view, None for null; Arrow's scalars would copy."""
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        column = column.cast(pa.large_binary())
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    views: list[memoryview | None] = []
    for chunk in column.chunks:
        if len(chunk) == 0:
            continue
        _, offsets, data = chunk.buffers()
        ends = np.frombuffer(offsets, width)[chunk.offset : chunk.offset + len(chunk) + 1].tolist()
        view = memoryview(b"" if data is None else data).cast("B")
        valid = chunk.is_valid().to_pylist()
        views += [view[ends[row] : ends[row + 1]] if valid[row] else None for row in range(len(chunk))]
    return views


def row_bytes(table: pa.Table) -> np.ndarray:
    """Return the size of each row in bytes, int64: exact for strings and bytes with offsets, else the mean."""
    sizes = np.zeros(table.num_rows, np.int64)
    if not table.num_rows:
        return sizes
    fixed = 0
    for column in table.columns:
        if has_byte_length(column.type):
            is_large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
            fixed += table.num_rows * (8 if is_large else 4)
            if column.null_count < len(column):
                sizes += pc.fill_null(pc.cast(pc.binary_length(column), pa.int64()), 0).to_numpy()
        else:
            fixed += column.nbytes
    return sizes + fixed // table.num_rows


def sample_starts(ids: pa.ChunkedArray) -> np.ndarray:
    """Return the index of the first row of each run of equal ids, int64, ascending from 0; empty without rows."""
    if len(ids) == 0:
        return np.zeros(0, np.int64)
    changes = pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1))
    return np.concatenate([[0], np.flatnonzero(changes.to_numpy(zero_copy_only=False)) + 1]).astype(np.int64)


def are_adjacent(ids: pa.ChunkedArray) -> bool:
    """Return whether the rows of each sample follow each other directly."""
    return len(sample_starts(ids)) == pc.count_distinct(ids).as_py()


def gathered(table: pa.Table) -> pa.Table:
    """Return ``table`` with the rows of each sample adjacent, samples in the order of their first rows.

    A table that has them so is returned unchanged.
    """
    if are_adjacent(table["sample_id"]):
        return table
    codes = table["sample_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    return table.take(pa.array(np.argsort(codes, kind="stable")))


def parts_within(sizes: np.ndarray, limit: int) -> Iterator[slice]:
    """Yield consecutive parts of things of these ``sizes``: of at most ``limit`` together, or of one thing."""
    filled = np.cumsum(sizes)
    first = 0
    while first < len(filled):
        before = filled[first - 1] if first else 0
        last = max(int(np.searchsorted(filled, before + limit, side="right")), first + 1)
        yield slice(first, last)
        first = last


def split_samples(table: pa.Table, max_batch_bytes: int | None, sizes: np.ndarray | None = None) -> Iterator[pa.Table]:
    """Split ``table`` between samples into consecutive parts of at most ``max_batch_bytes``.

    A sample is a run of rows with one ``sample_id``; a sample above the limit becomes a part of its own. Parts share
    the table's memory. An empty table has no parts. ``sizes`` are the bytes of each row, by default
    :func:`row_bytes`.
    """
    if table.num_rows == 0:
        return
    if max_batch_bytes is None:
        yield table
        return
    starts = sample_starts(table["sample_id"])
    borders = np.append(starts, table.num_rows)
    for part in parts_within(np.add.reduceat(row_bytes(table) if sizes is None else sizes, starts), max_batch_bytes):
        yield table.slice(borders[part.start], borders[part.stop] - borders[part.start])


def whole_samples(tables: Iterable[pa.Table], max_batch_bytes: int | None) -> Iterator[pa.Table]:
    """Yield parts of whole samples, as :func:`split_samples` does, from ``tables`` that may split samples.

    At most one part and one of ``tables`` are in memory at a time, and another part after a sample above the limit. All
    tables have the same schema.
    """
    pending: list[pa.Table] = []
    filled = 0  # bytes since the last split: splitting at each of thousands of small tables takes quadratic time
    for table in tables:
        if table.num_rows == 0:
            continue
        pending.append(table)
        if max_batch_bytes is None or (filled := filled + int(row_bytes(table).sum())) <= max_batch_bytes:
            continue
        # keep the last part, since its last sample may continue in the next table
        *complete, last = split_samples(pa.concat_tables(pending), max_batch_bytes)
        del table
        pending = [last]
        yield from complete
        filled = int(row_bytes(last).sum())
        if filled > max_batch_bytes:  # one sample, which may go on for thousands of tables
            filled = 0
    if pending:
        yield from split_samples(pa.concat_tables(pending), max_batch_bytes)


def join_files(
    files: Iterable[tuple[str, Iterable[pa.Table]]], max_batch_bytes: int | None
) -> Iterator[tuple[pa.Table, tuple[str, ...]]]:
    """Join the tables of a partition into batches, each with the files of its rows.

    ``files`` are each file's URI and its tables of whole samples. Two samples of different files may have the same id.
    In one batch they would become one sample, so the second one starts a new batch. If no file has rows and one gives
    an empty table, the result is one batch without rows.
    """
    empty: pa.Table | None = None
    without_rows: list[str] = []
    pending: list[pa.Table] = []
    sources: list[str] = []
    ids: set[str] = set()
    filled = 0
    for uri, tables in files:
        for table in tables:
            if table.num_rows == 0:
                empty = table
                without_rows.append(uri)
                continue
            size = int(row_bytes(table).sum())
            own = set(pc.unique(table["sample_id"]).to_pylist())
            is_full = max_batch_bytes is not None and filled + size > max_batch_bytes
            if pending and (is_full or (uri not in sources and ids & own)):
                yield _joined(pending), tuple(sources)
                pending, sources, ids, filled = [], [], set(), 0
            pending.append(table)
            ids |= own
            filled += size
            if uri not in sources:
                sources.append(uri)
    if pending:
        yield _joined(pending), tuple(sources)
    elif empty is not None:
        yield empty, tuple(dict.fromkeys(without_rows))


def prefetch(items: Iterable[T], depth: int = 1) -> Generator[T, None, None]:
    """Yield ``items``, produced up to ``depth`` ahead in a separate thread.

    At most ``depth`` items exist besides the one that the consumer holds. An exception is raised in the place of its
    item. Closing the generator takes no lock and does not wait, since the garbage collector may close it: the thread
    finishes its current item, then closes ``items``.
    """
    iterator = iter(items)
    end = object()
    with Workers(1, "prefetch", at_end=iterator.close if isinstance(iterator, Generator) else None) as worker:
        ahead: deque[Future[T | object]] = deque(worker.submit(next, iterator, end) for _ in range(depth))
        while (item := ahead.popleft().result()) is not end:
            ahead.append(worker.submit(next, iterator, end))
            yield item  # type: ignore[misc]  # the sentinel was sorted out above


def _joined(tables: list[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else concat_unified(tables)
