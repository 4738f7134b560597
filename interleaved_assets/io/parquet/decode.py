"""Decoding of row groups in steps whose decoded size is bounded.

With a dictionary or shared prefixes, a few bytes in a file can decode to many in memory. String and bytes columns with
a dictionary therefore stay encoded until their rows are cut into slices by decoded size.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from interleaved_assets.io.parquet.footer import BYTE_ARRAY, RowGroup
from interleaved_assets.io.rows.batches import parts_within
from interleaved_assets.io.rows.value_bytes import value_bytes
from interleaved_assets.model.casting import any_type, with_columns
from interleaved_assets.model.errors import ShardError

# Maximum size of a decoding step, also if max_batch_bytes is larger: a batch is joined from several steps.
STEP_BYTES: Final = 64 * 2**20
STEP_ROWS: Final = 64 * 2**10
MAX_ROW_BYTES: Final = 2**31 - 1
"""Maximum decoded size of a row in bytes: the most that a column with 32-bit offsets can hold."""

# Minimum rows of a step for values with shared prefixes, whose length the footer does not give.
_FEWEST_ROWS: Final = 64


def encoded_columns(groups: Sequence[RowGroup], columns: set[str]) -> list[str]:
    """Return leaf paths below ``columns`` of string or bytes columns that have a dictionary in some row group."""
    paths = {
        ".".join(chunk.path)
        for group in groups
        for chunk in group.chunks
        if chunk.physical == BYTE_ARRAY and chunk.has_dictionary and chunk.path[0] in columns
    }
    return sorted(paths)


def decoded_steps(
    file: pq.ParquetFile, groups: Mapping[int, RowGroup], schema: pa.Schema, limit: int, uri: str
) -> Iterator[pa.Table]:
    """Yield the rows of ``file``, at most ``limit`` bytes or one row at a time, with UTF-8 and offsets validated.

    Raises:
        ShardError: a row is larger than :data:`MAX_ROW_BYTES`.
        pa.ArrowInvalid: the file is damaged, or a row group has other rows than its footer states.
    """
    for number, group in groups.items():
        step = _rows_per_step(group, set(schema.names), limit)
        found = 0
        for batch in file.iter_batches(batch_size=step, row_groups=[number], columns=schema.names):
            batch.validate(full=True)
            found += batch.num_rows
            yield from _decoded(batch, schema, limit, uri)
        if found != group.rows:
            raise pa.ArrowInvalid(
                f"row group {number} has {group.rows} rows, and reading it gave {found}"
                f"{_short_columns(file, number, group.rows, schema.names, step)}"
            )


def _short_columns(file: pq.ParquetFile, number: int, rows: int, columns: Sequence[str], step: int) -> str:
    """Describe the columns of a row group that have another number of rows than ``rows``; empty if all have it.

    Arrow ends a row group with its shortest column, and does not name it.
    """
    found = {
        name: sum(batch.num_rows for batch in file.iter_batches(batch_size=step, row_groups=[number], columns=[name]))
        for name in columns
    }
    short = [f"{name!r} has {count}" for name, count in found.items() if count != rows]
    return f": column {', '.join(short)}" if short else ""


def _rows_per_step(group: RowGroup, columns: set[str], limit: int) -> int:
    chunks = [chunk for chunk in group.chunks if chunk.path[0] in columns]
    size = sum(chunk.least_decoded_bytes for chunk in chunks)
    step = min(STEP_ROWS, group.rows if size <= limit else group.rows * limit // size)
    for chunk in chunks:
        if chunk.shares_prefixes:
            # a value may be as long as all encoded bytes together
            step = min(step, max(_FEWEST_ROWS, limit // max(1, chunk.encoded_bytes)))
    return max(1, step)


def _decoded(batch: pa.RecordBatch, target: pa.Schema, limit: int, uri: str) -> Iterator[pa.Table]:
    if not any(any_type(field.type, pa.types.is_dictionary) for field in batch.schema):
        yield _as_type(batch, target)
        return
    sizes = np.broadcast_to(sum(map(value_bytes, batch.columns)), batch.num_rows)
    for part in parts_within(sizes, limit):
        if sizes[part.start] > MAX_ROW_BYTES:
            raise ShardError(
                f"{uri}: a row takes {int(sizes[part.start])} bytes, and a row may take at most {MAX_ROW_BYTES}. "
                "Remove it, or split it into several rows."
            )
        yield _as_type(batch.slice(part.start, part.stop - part.start), target)


def _as_type(batch: pa.RecordBatch, target: pa.Schema) -> pa.Table:
    columns = [_decoded_in_place(column) for column in batch.columns]
    return with_columns(pa.Table.from_arrays(columns, batch.schema.names).select(target.names), target)


def _decoded_in_place(column: pa.Array) -> pa.Array:
    """Return ``column`` as bytes that are not copied, if it is a dictionary whose values its rows have in order.

    Images written with a dictionary are such a column. Values that take less than half of their dictionary are left to
    a copy, since a view would keep all of the dictionary in memory.
    """
    if not pa.types.is_dictionary(column.type) or column.type.value_type != pa.binary():
        return column
    values, picked = column.dictionary, column.indices.drop_null().to_numpy()
    if not len(picked) or values.null_count or (np.diff(picked) != 1).any():
        return column
    _, ends, data = values.buffers()
    ends = np.frombuffer(ends, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    valid = np.asarray(column.is_valid())
    offsets = ends[picked[0] + np.concatenate([[0], np.cumsum(valid)])]
    if 2 * (offsets[-1] - offsets[0]) < ends[-1] - ends[0]:
        return column
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(column), [bitmap, pa.py_buffer(offsets), data])
