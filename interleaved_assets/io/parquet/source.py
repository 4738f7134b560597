"""Access to Parquet files: verification of the footer, and ``ShardError`` for Arrow's exceptions on damaged files."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from interleaved_assets.io.parquet.decode import decoded_steps, encoded_columns
from interleaved_assets.io.parquet.footer import RowGroup, parse_row_groups
from interleaved_assets.io.parquet.seal import checked_footer
from interleaved_assets.io.storage import (
    StorageOptions,
    is_local,
    is_storage_failure,
    local_path,
    open_input,
    storage_errors,
)
from interleaved_assets.io.storage.local import LocalFile
from interleaved_assets.model.casting import empty_table, plain_type
from interleaved_assets.model.errors import ShardError

# A remote row group above this size is not fetched whole, but streamed in windows of each column.
_WHOLE_GROUP_BYTES: Final = 128 * 2**20
_WINDOW_BYTES: Final = 8 * 2**20
# Smaller than most pages of images, which are then read straight into their place.
_LOCAL_WINDOW_BYTES: Final = 64 * 2**10
_UNLIMITED: Final = 2**62


@dataclass
class ParquetSource:
    """An open Parquet file with a verified footer, returned by :func:`open_parquet`.

    Do not read columns of row groups from ``file.metadata``: pyarrow aborts the process if their size statistics are
    damaged. Use :attr:`row_groups`.
    """

    uri: str
    file: pq.ParquetFile
    row_groups: tuple[RowGroup, ...]
    _opened: Any
    _options: dict[str, Any]
    _local: LocalFile | None

    @cached_property
    def schema(self) -> pa.Schema:
        """The file's columns, with the types that Arrow gives them."""
        schema = self.file.schema_arrow
        if len(set(schema.names)) < len(schema.names):
            raise ShardError(f"{self.uri} has two columns with the same name; rename one")
        return schema

    def rows(self, columns: Collection[str], limit: int, groups: Sequence[int] | None = None) -> Iterator[pa.Table]:
        """Yield the rows in steps of at most ``limit`` decoded bytes, or of one row; strings are valid UTF-8.

        Names in ``columns`` that the file lacks are ignored; ``groups`` are the numbers of row groups, None for all.

        Raises:
            ShardError: a row is larger than :data:`~.decode.MAX_ROW_BYTES`.
            pa.ArrowException: the file is damaged; :func:`open_parquet` turns it into a ``ShardError``.
        """
        schema = self._decoded_schema(columns)
        file = self.file
        if encoded := encoded_columns(self.row_groups, set(schema.names)):
            options = {**self._options, "read_dictionary": encoded}
            file = pq.ParquetFile(self._opened, metadata=file.metadata, **options)
        numbers = range(len(self.row_groups)) if groups is None else groups
        chosen = {number: self.row_groups[number] for number in numbers}
        for step in decoded_steps(file, chosen, schema, limit, self.uri):
            _check(self._local)
            yield step

    def read(self, columns: Collection[str], groups: Sequence[int] | None = None) -> pa.Table:
        """Return all rows of ``columns`` as one table; for small files. It raises the errors of :meth:`rows`."""
        schema = self._decoded_schema(columns)
        return pa.concat_tables([empty_table(schema), *self.rows(columns, _UNLIMITED, groups)])

    def _decoded_schema(self, columns: Collection[str]) -> pa.Schema:
        fields = [field.with_type(plain_type(field.type)) for field in self.schema if field.name in columns]
        return pa.schema(fields, self.schema.metadata)


@contextmanager
def open_parquet(
    uri: str, storage_options: StorageOptions = None, *, advice: str = "Write it again, or remove it."
) -> Iterator[ParquetSource]:
    """Open a Parquet file and verify its footer; Arrow's exceptions in the block become ``ShardError``."""
    with ExitStack() as stack:
        stack.enter_context(storage_errors(uri, "read"))
        local = LocalFile(local_path(uri), uri) if is_local(uri) else None
        if local is not None:
            stack.enter_context(local)
        source: Any = stack.enter_context(open_input(uri, storage_options)) if local is None else local
        # innermost, since storage_errors turns every OSError into a StorageError
        stack.enter_context(_damage(uri, advice, local))
        row_groups = parse_row_groups(checked_footer(source))
        options: dict[str, Any] = {"page_checksum_verification": True}
        metadata = pq.ParquetFile(source, **options).metadata
        if local is not None:
            # every read of the footer is checked; pages are read without checks, and checked before they are returned
            source = stack.enter_context(local.native())
            options |= {"pre_buffer": False, "buffer_size": _LOCAL_WINDOW_BYTES}
        else:
            sizes = [metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups)]
            fits = max(sizes, default=0) <= _WHOLE_GROUP_BYTES
            options |= {"pre_buffer": fits, "buffer_size": 0 if fits else _WINDOW_BYTES}
        file = pq.ParquetFile(source, metadata=metadata, **options)
        yield ParquetSource(uri, file, row_groups, source, options, local)


@contextmanager
def _damage(uri: str, advice: str, local: LocalFile | None) -> Iterator[None]:
    """Turn Arrow's exceptions for an unreadable file into :class:`ShardError`, or StorageError if it has changed."""
    try:
        yield
    except (MemoryError, ShardError, pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if is_storage_failure(error):
            raise
        _check(local)
        if isinstance(error, ShardError):
            raise
        if isinstance(error, MemoryError):
            raise ShardError(
                f"{uri} needs more memory than is available: {error}. It is damaged, or its row groups are too large: "
                "write it again with smaller ones."
            ) from error
        reason = " ".join(str(error).split()).rstrip(".")
        if isinstance(error, pa.ArrowNotImplementedError):
            raise ShardError(
                f"{uri} has something that Arrow does not read, or is damaged: {reason}. {advice}"
            ) from error
        raise ShardError(f"{uri} is not a sound Parquet file: {reason}. {advice}") from error


def _check(local: LocalFile | None) -> None:
    if local is not None:
        local.check()
