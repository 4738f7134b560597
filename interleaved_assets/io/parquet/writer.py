"""Writer of interleaved Parquet: bounded row groups, uncompressed image bytes, the same file for the same rows."""

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from interleaved_assets.io.parquet.seal import SealedOutput
from interleaved_assets.io.parquet.types import stored_schema
from interleaved_assets.io.rows.batches import row_bytes, split_samples
from interleaved_assets.io.rows.reader import align_shard
from interleaved_assets.io.rows.writer import ShardWriter
from interleaved_assets.io.storage import AtomicOutput, StorageOptions, as_uri, atomic_output, parse_size
from interleaved_assets.model.casting import any_type, empty_table, plain_type, with_columns
from interleaved_assets.model.columns import ROW_KEY
from interleaved_assets.model.errors import OptionError, ShardError, StorageError
from interleaved_assets.model.row_checks import key_problems

ROW_GROUP_BYTES: Final = 64 * 2**20
"""Default maximum size of a row group in bytes, which limits the memory that a reader needs."""

CODECS: Final = ("zstd", "snappy", "gzip", "brotli", "lz4", "none")

# Images are compressed already: a codec, a dictionary or statistics would cost time without benefit.
_IMAGE_COLUMN: Final = "binary_content"
# Long values that rarely repeat: a dictionary does not help, and statistics would enlarge the footer.
_LONG_COLUMNS: Final = frozenset({_IMAGE_COLUMN, "text_content", "source_ref"})
_PAGE_BYTES: Final = 2**20


class ParquetShard:
    """A Parquet file that is being written, opened by :func:`parquet_shard`.

    Attributes:
        uri: the final path of the file.
        output: its file, which has its size, checksum and stamp once it is committed.
        schema: schema of its rows.
        rows: number of rows written so far.
    """

    def __init__(self, output: AtomicOutput, schema: pa.Schema, writer: pq.ParquetWriter, row_group_bytes: int) -> None:
        self.uri, self.output, self.schema, self.rows = output.uri, output, schema, 0
        self._writer, self._limit = writer, row_group_bytes
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0

    def write(self, table: pa.Table) -> None:
        """Append rows. Row groups end between samples and do not depend on how rows are split into tables.

        Raises:
            OptionError: the table has other columns than the schema.
            ShardError: a non-nullable column has nulls, a string is not UTF-8, or a time, date or decimal is out of the
                range of its type.
            StorageError: the file cannot be written.
        """
        if set(table.column_names) != set(self.schema.names):
            odd = sorted(set(table.column_names) ^ set(self.schema.names))
            raise OptionError(f"rows for {self.uri} do not have the columns of its schema: {', '.join(odd)}")
        if table.num_rows == 0:
            return
        aligned = align_shard(table, self.schema, self.uri)
        _check_values(aligned, self.uri)
        self.rows += table.num_rows
        self._pending.append(aligned)
        self._pending_bytes += int(row_bytes(table).sum())
        if self._pending_bytes > self._limit:
            *complete, rest = self._groups()
            for group in complete:
                self._write_group(group)
            self._pending, self._pending_bytes = [rest], int(row_bytes(rest).sum())

    def finish(self) -> None:
        """Write the pending rows; :func:`parquet_shard` calls this."""
        for group in self._groups() if self._pending else ():
            self._write_group(group)

    def _groups(self) -> Iterator[pa.Table]:
        rows = pa.concat_tables(self._pending)
        return split_samples(rows, self._limit) if "sample_id" in rows.column_names else iter([rows])

    def _write_group(self, group: pa.Table) -> None:
        columns = [
            _paged(column) if name == _IMAGE_COLUMN else column.combine_chunks()
            for name, column in zip(group.column_names, group.columns, strict=True)
        ]
        stored = with_columns(pa.Table.from_arrays(columns, schema=self.schema), self._writer.schema)
        self._writer.write_table(stored, row_group_size=stored.num_rows)


@contextlib.contextmanager
def parquet_shard(
    uri: str | PathLike[str],
    schema: pa.Schema,
    *,
    storage_options: StorageOptions = None,
    row_group_bytes: int = ROW_GROUP_BYTES,
    compression: str = "zstd",
) -> Iterator[ParquetShard]:
    """Write a Parquet file that appears complete at the end of the block, or not at all.

    Its bytes depend only on the rows, the schema and the arguments, not on how rows are split into tables.

    Args:
        uri: path or URL of the file.
        schema: schema of every table; columns of types that Parquet lacks are refused, and dictionaries, runs and views
            become plain.
        storage_options: fsspec options.
        row_group_bytes: a row group ends before the sample that would exceed this.
        compression: codec of all columns except ``binary_content``, which is not compressed; one of :data:`CODECS`.

    Raises:
        OptionError: ``compression`` is unknown, or a column has a type that Parquet cannot hold.
        StorageError: the file cannot be written.
    """
    uri = as_uri(uri, "uri")
    if compression not in CODECS:
        raise OptionError(f"compression must be one of {', '.join(CODECS)}, got {compression!r}")
    if empty := next((field for field in schema if any_type(field.type, _is_without_bytes)), None):
        raise OptionError(
            f"cannot write {uri} as Parquet: values of column {empty.name!r}, {empty.type}, have no bytes"
        )
    if negative := next((field for field in schema if any_type(field.type, _is_in_powers)), None):
        raise OptionError(
            f"cannot write {uri} as Parquet: column {negative.name!r}, {negative.type}, has a scale below 0: cast it"
        )
    schema = pa.schema([field.with_type(plain_type(field.type)) for field in schema], schema.metadata)
    with atomic_output(uri, storage_options) as output:
        sink = SealedOutput(output)
        try:
            writer = _arrow_writer(sink, stored_schema(schema), compression)
            try:
                shard = ParquetShard(output, schema, writer, row_group_bytes)
                yield shard
                shard.finish()
                sink.finish(writer)
            finally:
                # closing the writer of a discarded file writes a footer, which may fail with the error that ended the
                # block
                with contextlib.suppress(StorageError, pa.ArrowException):
                    writer.close()
        except pa.ArrowNotImplementedError as error:
            raise OptionError(f"cannot write {uri} as Parquet: {error}") from error


@dataclass
class InterleavedParquetWriter(ShardWriter):
    """A writer that writes each batch as one Parquet file. Its options are those of :class:`ShardWriter`.

    ``write_kwargs`` may have ``compression`` (of all columns except ``binary_content``; one of :data:`CODECS`) and
    ``row_group_bytes`` (a number, or text such as ``"64MiB"``).
    """

    write_options: ClassVar[frozenset[str]] = frozenset({"compression", "row_group_bytes"})

    def __post_init__(self) -> None:
        super().__post_init__()
        self._shard_options: dict[str, Any] = dict(self._options)
        if "row_group_bytes" in self._options:
            self._shard_options["row_group_bytes"] = parse_size(self._options["row_group_bytes"], "row_group_bytes")

    @property
    def extension(self) -> str:
        return ".parquet"

    def write_shard(self, uri: str, schema: pa.Schema, parts: Iterator[pa.Table]) -> None:
        options = self._shard_options
        with parquet_shard(uri, schema, storage_options=self._storage_options, **options) as shard:
            for part in parts:
                _check_keys(part, uri)
                shard.write(part)


def _arrow_writer(sink: SealedOutput, schema: pa.Schema, compression: str) -> pq.ParquetWriter:
    leaves = _leaves(schema)
    others = [leaf for leaf in leaves if leaf not in _LONG_COLUMNS]
    return pq.ParquetWriter(
        sink,
        schema,
        compression={leaf: "none" if leaf == _IMAGE_COLUMN else compression for leaf in leaves},
        use_dictionary=others,
        write_statistics=others,
        data_page_size=_PAGE_BYTES,
    )


def _check_keys(part: pa.Table, uri: str) -> None:
    """Refuse keys that the tar writer refuses, so that every Parquet shard can be converted to tar.

    If ``schema`` lacks a key column, nothing is checked.
    """
    if not part.num_rows or any(name not in part.column_names for name in ROW_KEY):
        return
    if problems := key_problems(align_shard(part.select(ROW_KEY), None, uri)):
        raise OptionError(f"cannot write {uri}: {'; '.join(problems)}")


def _is_without_bytes(dtype: pa.DataType) -> bool:
    """Return whether ``dtype`` has a fixed size of 0: pyarrow refuses such bytes, and cannot read such lists."""
    is_empty_list = pa.types.is_fixed_size_list(dtype) and not dtype.list_size
    return is_empty_list or (pa.types.is_fixed_size_binary(dtype) and not dtype.byte_width)


def _is_in_powers(dtype: pa.DataType) -> bool:
    """Return whether ``dtype`` is a decimal with a negative scale, which Parquet does not have."""
    return pa.types.is_decimal(dtype) and dtype.scale < 0


def _check_values(table: pa.Table, uri: str) -> None:
    """Refuse values that readers reject."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise ShardError(f"cannot write {uri}: column {name!r}: {error}") from error


def _paged(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Rechunk the column so that chunks depend only on its values, since Parquet pages end where chunks end.

    Only values from more than one old chunk are copied.
    """
    filled = np.cumsum(row_bytes(pa.table({"": column})))
    chunks = []
    first = 0
    while first < len(column):
        before = filled[first - 1] if first else 0
        last = min(int(np.searchsorted(filled, before + _PAGE_BYTES)) + 1, len(column))
        part = column.slice(first, last - first)
        chunks.append(part.chunk(0) if part.num_chunks == 1 else part.combine_chunks())
        first = last
    return pa.chunked_array(chunks, column.type)


def _leaves(schema: pa.Schema) -> list[str]:
    """Return the paths of the leaf columns as Parquet names them, such as ``tags.list.element``."""
    empty = io.BytesIO()
    pq.write_table(empty_table(schema), empty)
    columns = pq.read_metadata(pa.py_buffer(empty.getbuffer())).schema
    return [columns.column(index).path for index in range(len(columns))]
