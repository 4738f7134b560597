"""Read a shard file of any format, and write one of the format that its name says."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from os import PathLike

import pyarrow as pa

from interleaved_assets.io.formats.format import ShardFormat
from interleaved_assets.io.formats.registry import all_formats, format_by_name, format_named, shard_endings
from interleaved_assets.io.parquet.writer import ParquetShard
from interleaved_assets.io.storage import StorageOptions, as_uri, open_input
from interleaved_assets.io.storage.limits import LIMITS, TarLimits
from interleaved_assets.io.tar.layout import ShardLayout
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.io.tar.writer import TarShard
from interleaved_assets.model.errors import OptionError


def read_shard(
    uri: str | PathLike[str],
    *,
    layout: ShardLayout | None = None,
    max_batch_bytes: int | None = None,
    storage_options: StorageOptions = None,
    allowed_roots: Sequence[str] | None = None,
    limits: TarLimits = LIMITS,
    notes: Counter[str] | None = None,
    accept_incomplete: bool = True,
) -> Iterator[pa.Table]:
    """Yield tables of whole samples with the bytes of their images, from a file of any format; at least one table.

    The format is seen from the first bytes, else from the name. All tables have the same schema; a shard without
    samples gives one table without rows.

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
        ShardError: it is of no known format, or is damaged.
        IncompleteShard: the tar is cut, and ``accept_incomplete`` is False.
    """
    options = ReadOptions(
        layout=layout or ShardLayout(),
        max_batch_bytes=max_batch_bytes,
        materialize=True,
        storage_options=storage_options,
        allowed_roots=allowed_roots,
        limits=limits,
        accept_incomplete=accept_incomplete,
        notes=notes,
    )
    return read_file(as_uri(uri, "uri"), options)


def read_file(uri: str, options: ReadOptions) -> Iterator[pa.Table]:
    """Do the work of :func:`read_shard`."""
    return format_of(uri, options.storage_options).tables(uri, options)


def write_shard(
    uri: str | PathLike[str],
    schema: pa.Schema,
    *,
    storage_options: StorageOptions = None,
    limits: TarLimits = LIMITS,
) -> AbstractContextManager[TarShard | ParquetShard]:
    """Write a shard that appears complete at the end of the block, or not at all; its ending decides the format.

    Args:
        uri: path or URL with the ending of a format that can be written.
        schema: schema of every table; a tar takes it from its rows.
        storage_options: fsspec options.
        limits: those that a tar will be read with.

    Raises:
        OptionError: another ending.
        StorageError: the file cannot be written.
    """
    uri = as_uri(uri, "uri")
    if (named := format_named(uri)) is None or named.write is None:
        raise OptionError(f"cannot write {uri}: its name has to end in {', '.join(shard_endings(writable=True))}")
    return named.write(uri, schema, storage_options, limits)


def format_of(uri: str, storage_options: StorageOptions = None) -> ShardFormat:
    """Return the format of a file by its first bytes, else by its name."""
    with open_input(uri, storage_options) as file:
        head = file.read(max(len(one.magic) for one in all_formats()))
    known = (one for one in all_formats() if one.magic and head.startswith(one.magic))
    return next(known, format_by_name(uri))
