"""One shard file in any form: read as tables of whole samples, written in the form that its name says."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final

import pyarrow as pa

from interleaved_assets.io.parquet.reader import InterleavedParquetReader
from interleaved_assets.io.parquet.seal import MAGIC
from interleaved_assets.io.parquet.writer import ParquetShard, parquet_shard
from interleaved_assets.io.rows.fill import materialize_parts
from interleaved_assets.io.storage import StorageOptions, folders_of, open_input
from interleaved_assets.io.storage.limits import LIMITS, TarLimits
from interleaved_assets.io.tar.layout import ShardLayout
from interleaved_assets.io.tar.reader import read_tar_shard
from interleaved_assets.io.tar.writer import TarShard, tar_shard
from interleaved_assets.model.errors import OptionError
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA

PARQUET_ENDING: Final = ".parquet"
TAR_ENDINGS: Final = (".tar", ".tar.gz", ".tgz")
SHARD_ENDINGS: Final = (*TAR_ENDINGS, PARQUET_ENDING)
"""Endings of the files that a search of a folder finds; also the endings that can be written."""


def read_shard(
    uri: str,
    *,
    layout: ShardLayout | None = None,
    max_batch_bytes: int | None = None,
    storage_options: StorageOptions = None,
    allowed_roots: Sequence[str] | None = None,
    limits: TarLimits = LIMITS,
    notes: Counter[str] | None = None,
    accept_incomplete: bool = True,
) -> Iterator[pa.Table]:
    """Tables of whole samples with the bytes of their images, from a tar or a Parquet file; at least one table.

    The form is seen from the first bytes. All tables have the same schema; a shard without samples gives one table
    without rows.

    Args:
        uri: a path or a URL of one file.
        layout: which JSON fields and members of a tar hold what; MINT-1T's by default.
        max_batch_bytes: a table ends before the sample that would exceed this; None gives one table.
        storage_options: fsspec options.
        allowed_roots: folders and URLs from which a ``source_ref`` may be fetched; by default the file's own folder.
        limits: what a member, document, sample and shard may take.
        notes: counts by kind what was noticed in a tar and is no error of a row.
        accept_incomplete: read a tar that is cut or damaged as far as possible.

    Raises:
        StorageError: the file is missing or unreadable.
        ShardError: it is neither a tar nor interleaved Parquet, or is damaged.
        IncompleteShard: the tar is cut, and ``accept_incomplete`` is False.
    """
    if is_parquet(uri, storage_options):
        return _parquet_tables(uri, max_batch_bytes, storage_options, allowed_roots, limits)
    tables = read_tar_shard(
        uri,
        layout=layout,
        max_batch_bytes=max_batch_bytes,
        materialize=True,
        storage_options=storage_options,
        allowed_roots=allowed_roots,
        **limits._asdict(),
        notes=notes,
        accept_incomplete=accept_incomplete,
    )
    return _at_least_one(tables)


def write_shard(
    uri: str, schema: pa.Schema, *, storage_options: StorageOptions = None, limits: TarLimits = LIMITS
) -> AbstractContextManager[TarShard | ParquetShard]:
    """Write a shard that appears complete at the end of the block, or not at all; its ending decides the form.

    Args:
        uri: path or URL that ends in one of :data:`SHARD_ENDINGS`.
        schema: schema of every table; a tar takes it from its rows.
        storage_options: fsspec options.
        limits: those that a tar will be read with.

    Raises:
        OptionError: another ending.
        StorageError: the file cannot be written.
    """
    if not uri.lower().endswith(SHARD_ENDINGS):
        raise OptionError(f"cannot write {uri}: its name has to end in {', '.join(SHARD_ENDINGS)}")
    if uri.lower().endswith(PARQUET_ENDING):
        return parquet_shard(uri, schema, storage_options=storage_options)
    return tar_shard(uri, storage_options=storage_options, limits=limits)


def is_parquet(uri: str, storage_options: StorageOptions = None) -> bool:
    """Whether the file begins as Parquet does; of a file that begins otherwise, whether it is named so."""
    with open_input(uri, storage_options) as file:
        return file.read(len(MAGIC)) == MAGIC or uri.lower().endswith(PARQUET_ENDING)


def _parquet_tables(
    uri: str,
    max_batch_bytes: int | None,
    storage_options: StorageOptions,
    allowed_roots: Sequence[str] | None,
    limits: TarLimits,
) -> Iterator[pa.Table]:
    reader = InterleavedParquetReader(
        uri, max_batch_bytes=max_batch_bytes, read_kwargs={"storage_options": storage_options}
    )
    for batch in reader:
        yield from materialize_parts(
            batch.to_pyarrow(),
            max_batch_bytes,
            storage_options=storage_options,
            allowed_roots=folders_of([uri]) if allowed_roots is None else allowed_roots,
            limits=limits,
        )


def _at_least_one(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    first = next(tables, None)
    yield INTERLEAVED_SCHEMA.empty_table() if first is None else first
    yield from tables
