"""Reader of interleaved Parquet: selected columns, in bounded steps, as whole samples."""

import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from interleaved_assets.io.parquet.decode import STEP_BYTES
from interleaved_assets.io.parquet.source import ParquetSource, open_parquet
from interleaved_assets.io.parquet.types import original_schema
from interleaved_assets.io.rows.batches import gathered, row_bytes, sample_starts, whole_samples
from interleaved_assets.io.rows.raw_versions import with_raw_versions_of
from interleaved_assets.io.rows.reader import ShardReader, align_shard, warn_absent
from interleaved_assets.io.rows.value_bytes import has_byte_length
from interleaved_assets.io.storage import InputFile, StorageOptions, as_uri
from interleaved_assets.model.casting import empty_table
from interleaved_assets.model.columns import REQUIRED_COLUMNS, RESERVED_COLUMNS
from interleaved_assets.model.errors import OptionError, ShardError
from interleaved_assets.model.rows import filter_rows
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA, reconcile_schema

logger = logging.getLogger(__name__)

GATHERED_BYTES: Final = 2**30
"""Maximum size in memory of a file whose rows must be gathered because those of a sample are not adjacent."""


@dataclass
class InterleavedParquetReader(ShardReader):
    """Reader of interleaved Parquet. Its options are those of :class:`ShardReader`.

    ``read_kwargs`` may have ``columns`` (the columns to read; required ones are always read) and ``filters`` (the rows
    to keep: a ``pyarrow.compute.Expression`` or the list of tuples of ``pyarrow.parquet``). Reserved columns that a
    file lacks are filled with nulls. If files of a partition differ in their columns, batches have the columns of all.
    """

    file_extensions: Sequence[str] = (".parquet",)

    read_options: ClassVar[frozenset[str]] = frozenset({"columns", "filters"})

    def read_files(self, files: Sequence[InputFile]) -> Iterable[tuple[str, Iterable[pa.Table]]]:
        """Implement :meth:`ShardReader.read_files`."""
        columns = self._columns()
        uris = [file.uri for file in files]
        seen: set[str] = set()
        schemas = [self._schema_of(uri, columns, seen) for uri in uris]
        if absent := {*(self.fields or ())} - seen - RESERVED_COLUMNS:
            warn_absent(absent, uris, seen - RESERVED_COLUMNS)
        schema = _unified(schemas, uris)
        return ((file.uri, self._tables(file.uri, schema)) for file in files)

    def _columns(self) -> set[str] | None:
        """Return the columns to read if a file has them; None for all."""
        given = self._options.get("columns")
        if isinstance(given, str):
            raise OptionError("read_kwargs columns is a list of names, not one string")
        limits = [set(names) for names in (given, self._target and self._target.names) if names is not None]
        if self.fields is not None:
            limits.append(set(self.fields) | RESERVED_COLUMNS)
        return set.intersection(*limits) | set(REQUIRED_COLUMNS) if limits else None

    def _schema_of(self, uri: str, columns: set[str] | None, seen: set[str]) -> pa.Schema:
        """Return the schema of one file: its columns, and the reserved columns and ``fields`` that it lacks.

        The names of all of the file's columns are added to ``seen``.
        """
        with open_parquet(uri, self._storage_options) as source:
            schema = _readable(source, columns)
            seen.update(source.schema.names)
        for name in INTERLEAVED_SCHEMA.names:
            if name not in schema.names and (columns is None or name in columns):
                schema = schema.append(INTERLEAVED_SCHEMA.field(name))
        for name in self.fields or ():
            if name not in schema.names and name not in RESERVED_COLUMNS:
                schema = schema.append(pa.field(name, pa.null()))
        # types that the caller gave need not be unified between files
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
        # at least one table, so that a file without rows gives a batch
        return (align_shard(table, schema, uri) for table in itertools.chain(tables, [empty_table(schema)]))


def read_parquet_shard(
    uri: str | PathLike[str],
    *,
    columns: Iterable[str] | None = None,
    max_batch_bytes: int | None = None,
    storage_options: StorageOptions = None,
    filters: Any = None,
) -> Iterator[pa.Table]:
    """Yield tables of whole samples from one Parquet file, in order, each of at most ``max_batch_bytes``.

    Memory depends on ``max_batch_bytes``, not on the file or its row groups. If rows of a sample are not adjacent, they
    are gathered at its first row; this reads the whole file into memory, and logs a warning.

    Args:
        uri: a path or a URL.
        columns: columns to read; names that the file lacks are ignored; None reads all. ``sample_id`` is always read.
        max_batch_bytes: a table ends before the sample that would exceed this; None gives one table.
        storage_options: fsspec options.
        filters: rows to keep, in the format of ``pyarrow.parquet``; may use only columns that are read.

    Raises:
        StorageError: the file is missing or unreadable.
        ShardError: it is not Parquet, is damaged, or lacks ``sample_id``, ``position`` or ``modality``.
        OptionError: ``filters`` is invalid.
    """
    keep = _expression(filters)
    with open_rows(as_uri(uri, "uri"), storage_options) as rows:
        yield from rows.tables(columns, max_batch_bytes, keep)


class OpenRows:
    """An open file of rows, whose tables may be read several times; :func:`open_rows` returns it."""

    def __init__(self, source: ParquetSource) -> None:
        self._source, self.uri = source, source.uri

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the tables with all columns, also if the file has no rows."""
        return _readable(self._source, None)

    def tables(
        self,
        columns: Iterable[str] | None = None,
        max_batch_bytes: int | None = None,
        keep: pc.Expression | None = None,
    ) -> Iterator[pa.Table]:
        """Do the work of :func:`read_parquet_shard`; ``keep`` is true for the rows to keep."""
        uri, wanted = self._source.uri, None if columns is None else {*columns, "sample_id"}
        schema = _readable(self._source, wanted)
        rows = self._source.rows(schema.names, min(max_batch_bytes or STEP_BYTES, STEP_BYTES))
        steps = (align_shard(_filtered(step, keep), schema, uri) for step in rows)
        if self._are_adjacent:
            yield from whole_samples(steps, max_batch_bytes)
        else:
            logger.warning("%s: rows of a sample are not adjacent; the whole file is read to gather them", uri)
            yield from whole_samples([gathered(_whole(steps, uri))], max_batch_bytes)

    @cached_property
    def _are_adjacent(self) -> bool:
        """True if the rows of each sample are adjacent; ids are read in steps, and one hash is kept per sample."""
        seen: set[int] = set()
        last: str | None = None
        for table in self._source.rows(["sample_id"], STEP_BYTES):
            column = table["sample_id"]
            if column.null_count:
                raise ShardError(f"{self.uri}: sample_id is null in {column.null_count} of {len(column)} rows")
            if not has_byte_length(column.type):
                # cast to text: Arrow compares no UUIDs, and Python has no value for a time beyond the year 9999
                column = align_shard(table, None, self.uri)["sample_id"]
            for sample_id in column.take(pa.array(sample_starts(column))).to_pylist():
                if sample_id == last:
                    continue
                # a hash collision only causes unnecessary gathering
                if (mark := hash(sample_id)) in seen:
                    return False
                seen.add(mark)
                last = sample_id
        return True


@contextmanager
def open_rows(uri: str, storage_options: StorageOptions = None) -> Iterator[OpenRows]:
    """Open a Parquet file of rows, to read its schema and its rows without opening it again.

    Raises:
        StorageError, ShardError: as for :func:`read_parquet_shard`.
    """
    with open_parquet(uri, storage_options) as source:
        yield OpenRows(source)


def parquet_shard_schema(uri: str | PathLike[str], *, storage_options: StorageOptions = None) -> pa.Schema:
    """Return the schema of the tables that :func:`read_parquet_shard` gives for this file, also if it has no rows.

    Raises:
        StorageError, ShardError: as for :func:`read_parquet_shard`.
    """
    with open_rows(as_uri(uri, "uri"), storage_options) as rows:
        return rows.schema


def _readable(source: ParquetSource, columns: set[str] | None) -> pa.Schema:
    """Return the schema of the columns to read: their original types, and canonical types for reserved columns.

    Raises:
        ShardError: a required column is missing, or a column name occurs twice.
    """
    schema = source.schema
    if missing := [name for name in REQUIRED_COLUMNS if name not in schema.names]:
        raise ShardError(
            f"{source.uri} is not interleaved Parquet: it lacks the columns {', '.join(missing)}. "
            "docs/sources.md shows which Parquet files are read; storage.raw_formats says which formats are shards."
        )
    fields = [field for field in schema if columns is None or field.name in columns]
    # the pandas metadata describe an index, and are wrong for a subset of the columns
    metadata = {key: value for key, value in (schema.metadata or {}).items() if key != b"pandas"}
    stored = pa.schema(fields, metadata or None)
    return reconcile_schema(original_schema(stored, source.file.metadata.metadata))


def _whole(steps: Iterable[pa.Table], uri: str) -> pa.Table:
    tables, size = [], 0
    for table in steps:
        size += int(row_bytes(table).sum())
        if size > GATHERED_BYTES:
            raise ShardError(
                f"{uri}: rows of a sample are not adjacent, and the file is too large to gather them: more than "
                f"{GATHERED_BYTES} bytes. Sort it by sample_id, or read fewer columns."
            )
        tables.append(table)
    return pa.concat_tables(tables)


def _expression(filters: Any) -> pc.Expression | None:
    if filters is None or isinstance(filters, pc.Expression):
        return filters
    try:
        return pq.filters_to_expression(filters)
    except (ValueError, TypeError) as error:
        raise OptionError(f"read_kwargs filters are invalid: {error}") from error


def _filtered(table: pa.Table, keep: pc.Expression | None) -> pa.Table:
    if keep is None:
        return table
    # filter row numbers with the other columns, so that images are not copied
    numbered = table.drop_columns([name for name in ("binary_content",) if name in table.column_names])
    # the column is the last one: its name could also be that of another column
    numbered = numbered.append_column("_row", pa.array(np.arange(table.num_rows)))
    try:
        rows = numbered.filter(keep).column(numbered.num_columns - 1).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise OptionError(f"read_kwargs filters do not fit the columns that are read: {error}") from error
    mask = np.zeros(table.num_rows, dtype=bool)
    mask[rows] = True
    return filter_rows(table, pa.array(mask))


def _unified(schemas: Sequence[pa.Schema], uris: Sequence[str]) -> pa.Schema:
    """Return one schema for the files of a partition: all columns, with types that hold the values of all files."""
    unified = schemas[0]
    for schema, uri in zip(schemas[1:], uris[1:], strict=True):
        try:
            unified = pa.unify_schemas([unified, schema], promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ShardError(
                f"{uri} does not fit the files before it in its partition: {error}. "
                "Read it in a partition of its own, or pass schema or schema_overrides."
            ) from error
    return with_raw_versions_of(reconcile_schema(unified), schemas)
