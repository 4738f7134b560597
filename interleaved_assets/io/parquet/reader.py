"""Reading interleaved Parquet: only the columns asked for, a few row groups at a time, whole samples."""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from interleaved_assets.io.batches import are_adjacent, filter_rows, gathered, whole_samples
from interleaved_assets.io.parquet.types import original_schema
from interleaved_assets.io.reader import ShardReader, align_shard
from interleaved_assets.io.storage import InputFile, StorageOptions, is_local, local_path, open_input, storage_errors
from interleaved_assets.io.storage.local import LocalFile
from interleaved_assets.model.errors import OptionError, ShardError, StorageError
from interleaved_assets.model.schema import (
    INTERLEAVED_SCHEMA,
    REQUIRED_COLUMNS,
    RESERVED_COLUMNS,
    reconcile_schema,
)

logger = logging.getLogger(__name__)

# What one decoding step may take, whatever max_batch_bytes allows: batches are put together from steps.
_STEP_BYTES: Final = 64 * 2**20
# A remote row group larger than this is not fetched whole, but streamed a window of each column at a time.
_WHOLE_GROUP_BYTES: Final = 128 * 2**20
_WINDOW_BYTES: Final = 8 * 2**20
_LOCAL_WINDOW_BYTES: Final = 2**20


@dataclass
class InterleavedParquetReader(ShardReader):
    """Reads interleaved Parquet. Options as for :class:`ShardReader`.

    ``read_kwargs`` may have ``columns`` (to read no others; the required ones are always read) and ``filters`` (rows
    to keep: a ``pyarrow.compute.Expression`` or the list of tuples that ``pyarrow.parquet`` takes). Reserved columns
    that a file lacks are null. Files of one partition may differ in their columns: each has all of them.
    """

    file_extensions: Sequence[str] = (".parquet",)

    read_options: ClassVar[frozenset[str]] = frozenset({"columns", "filters"})

    def read_files(self, files: Sequence[InputFile]) -> Iterable[tuple[str, Iterable[pa.Table]]]:
        """See :class:`ShardReader`."""
        columns = self._columns()
        schemas = [self._schema_of(file.uri, columns) for file in files]
        schema = _unified(schemas, [file.uri for file in files])
        return ((file.uri, self._tables(file.uri, schema)) for file in files)

    def _columns(self) -> set[str] | None:
        """Columns to read where a file has them; None for all."""
        given = self._options.get("columns")
        if isinstance(given, str):
            raise OptionError("read_kwargs columns is a list of names, not one string")
        limits = [set(names) for names in (given, self._target and self._target.names) if names is not None]
        if self.fields is not None:
            limits.append(set(self.fields) | RESERVED_COLUMNS)
        return set.intersection(*limits) | set(REQUIRED_COLUMNS) if limits else None

    def _schema_of(self, uri: str, columns: set[str] | None) -> pa.Schema:
        """What one file contributes: its columns, the reserved ones that it lacks, the fields that it lacks."""
        with _open(uri, self._storage_options) as file:
            schema = _readable(file, uri, columns)
        for name in INTERLEAVED_SCHEMA.names:
            if name not in schema.names and (columns is None or name in columns):
                schema = schema.append(INTERLEAVED_SCHEMA.field(name))
        for name in self.fields or ():
            if name not in schema.names:
                schema = schema.append(pa.field(name, pa.null()))
        # what the caller decides need not be reconciled among the files
        decided = {} if self._target is None else {field.name: field for field in self._target}
        return pa.schema([decided.get(field.name, field) for field in schema], schema.metadata)

    def _tables(self, uri: str, schema: pa.Schema) -> Iterator[pa.Table]:
        tables = read_parquet_shard(
            uri,
            columns=schema.names,
            max_batch_bytes=self._limit,
            storage_options=self._storage_options,
            filters=self._options.get("filters"),
        )
        return (align_shard(table, schema, uri) for table in tables)


def read_parquet_shard(
    uri: str,
    *,
    columns: Iterable[str] | None = None,
    max_batch_bytes: int | None = None,
    storage_options: StorageOptions = None,
    filters: Any = None,
) -> Iterator[pa.Table]:
    """Tables of whole samples from one Parquet file, in order, each of at most ``max_batch_bytes``.

    Memory follows ``max_batch_bytes`` and not the file or its row groups. Rows of a sample that lie apart are brought
    together at its first row; that takes the whole file into memory, and is logged.

    Args:
        uri: a path or a URL.
        columns: columns to read, those that the file lacks aside; None reads all. ``sample_id`` is always read.
        max_batch_bytes: a table is cut before the sample that would exceed it; None gives one table.
        storage_options: what fsspec needs.
        filters: rows to keep, as ``pyarrow.parquet`` takes them; tested on the columns that are read.

    Raises:
        StorageError: the file is missing or unreadable.
        ShardError: it is not Parquet, is damaged, or lacks ``sample_id``, ``position`` or ``modality``.
        OptionError: ``filters`` makes no sense.
    """
    wanted = None if columns is None else {*columns, "sample_id"}
    keep = _expression(filters)
    with _open(uri, storage_options) as file:
        schema = _readable(file, uri, wanted)
        steps = (align_shard(_filtered(step, keep), schema, uri) for step in _steps(file, schema, max_batch_bytes))
        if are_adjacent(_sample_ids(file, uri)):
            yield from whole_samples(steps, max_batch_bytes)
        else:
            logger.warning("%s: rows of a sample lie apart; the whole file is read to bring them together", uri)
            yield from whole_samples([gathered(pa.concat_tables(steps))], max_batch_bytes)


def parquet_shard_schema(uri: str, *, storage_options: StorageOptions = None) -> pa.Schema:
    """Schema of the tables that :func:`read_parquet_shard` gives for this file, known also where it has no rows.

    Raises:
        StorageError, ShardError: as for :func:`read_parquet_shard`.
    """
    with _open(uri, storage_options) as file:
        return _readable(file, uri, None)


@contextlib.contextmanager
def _open(uri: str, storage_options: StorageOptions) -> Iterator[pq.ParquetFile]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(_damage(uri))
        if is_local(uri):
            with storage_errors(uri, "read"):
                local = stack.enter_context(LocalFile(local_path(uri), uri))
            yield pq.ParquetFile(local, buffer_size=_LOCAL_WINDOW_BYTES, pre_buffer=False)
            return
        source = stack.enter_context(open_input(uri, storage_options))
        metadata = pq.ParquetFile(source).metadata
        groups = [metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups)]
        fits = max(groups, default=0) <= _WHOLE_GROUP_BYTES
        yield pq.ParquetFile(source, metadata=metadata, pre_buffer=fits, buffer_size=0 if fits else _WINDOW_BYTES)


@contextlib.contextmanager
def _damage(uri: str) -> Iterator[None]:
    """Turn what Arrow raises for a file that it cannot read into a :class:`ShardError`."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        # Arrow says OSError for damage too, but without an errno; with one it is the storage's
        is_storage = isinstance(error, OSError) and (isinstance(error, StorageError) or error.errno is not None)
        if is_storage or isinstance(error, MemoryError):
            raise
        raise ShardError(f"{uri} is not a sound Parquet file: {error}. Write it anew, or take it out.") from error


def _readable(file: pq.ParquetFile, uri: str, columns: set[str] | None) -> pa.Schema:
    """Schema of the columns to read, as they were written, reserved ones right.

    Raises:
        ShardError: a required column is missing, or a name is there twice.
    """
    schema = file.schema_arrow
    if missing := [name for name in REQUIRED_COLUMNS if name not in schema.names]:
        raise ShardError(f"{uri} is not interleaved Parquet: it lacks the columns {', '.join(missing)}")
    if len(set(schema.names)) < len(schema.names):
        raise ShardError(f"{uri} has two columns of one name; rename one")
    fields = [field for field in schema if columns is None or field.name in columns]
    # what pandas notes there is about its own index, and wrong for a part of the columns
    metadata = {key: value for key, value in (schema.metadata or {}).items() if key != b"pandas"}
    return reconcile_schema(original_schema(pa.schema(fields, metadata or None), file.metadata.metadata))


def _steps(file: pq.ParquetFile, schema: pa.Schema, max_batch_bytes: int | None) -> Iterator[pa.Table]:
    """The rows, a bounded number of bytes at a time."""
    limit = min(max_batch_bytes or _STEP_BYTES, _STEP_BYTES)
    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        size = _group_bytes(file, group, set(schema.names))
        step = max(1, rows if size <= limit else rows * limit // size)
        for batch in file.iter_batches(batch_size=step, row_groups=[group], columns=schema.names):
            yield pa.Table.from_batches([batch])


def _group_bytes(file: pq.ParquetFile, group: int, columns: set[str]) -> int:
    """Decoded bytes of ``columns`` in one row group."""
    metadata = file.metadata.row_group(group)
    chunks = (metadata.column(index) for index in range(metadata.num_columns))
    return sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.partition(".")[0] in columns)


def _sample_ids(file: pq.ParquetFile, uri: str) -> pa.ChunkedArray:
    ids = file.read(columns=["sample_id"])["sample_id"]
    if ids.null_count:
        raise ShardError(f"{uri}: sample_id is null in {ids.null_count} of {len(ids)} rows")
    return ids


def _expression(filters: Any) -> pc.Expression | None:
    if filters is None or isinstance(filters, pc.Expression):
        return filters
    try:
        return pq.filters_to_expression(filters)
    except (ValueError, TypeError) as error:
        raise OptionError(f"read_kwargs filters make no sense: {error}") from error


def _filtered(table: pa.Table, keep: pc.Expression | None) -> pa.Table:
    if keep is None:
        return table
    # the filter is run on row numbers beside the other columns, so that no image is copied by it
    numbered = table.drop_columns([name for name in ("binary_content",) if name in table.column_names])
    numbered = numbered.append_column("", pa.array(np.arange(table.num_rows)))
    try:
        rows = numbered.filter(keep)[""].to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise OptionError(f"read_kwargs filters do not fit the columns that are read: {error}") from error
    mask = np.zeros(table.num_rows, dtype=bool)
    mask[rows] = True
    return filter_rows(table, pa.array(mask))


def _unified(schemas: Sequence[pa.Schema], uris: Sequence[str]) -> pa.Schema:
    """One schema for the files of a partition: all columns, types as wide as they must be."""
    unified = schemas[0]
    for schema, uri in zip(schemas[1:], uris[1:], strict=True):
        try:
            unified = pa.unify_schemas([unified, schema], promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ShardError(
                f"{uri} does not fit the files before it in its partition: {error}. "
                "Read it in a partition of its own, or pass schema or schema_overrides."
            ) from error
    return reconcile_schema(unified)
