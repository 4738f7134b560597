"""The format of tars of documents: MINT-1T's, and those that this package writes."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from interleaved_assets.io.formats.format import ShardFormat
from interleaved_assets.io.storage import StorageOptions
from interleaved_assets.io.tar.layout import TAR_ENDINGS

if TYPE_CHECKING:
    import pyarrow as pa

    from interleaved_assets.io.storage.limits import TarLimits
    from interleaved_assets.io.tar.reader import ReadOptions
    from interleaved_assets.io.tar.writer import TarShard


def _read(uri: str, options: "ReadOptions") -> "Iterator[pa.Table]":
    from interleaved_assets.io.tar.reader import read_tar  # declaring a format loads no reader
    from interleaved_assets.model.schema import INTERLEAVED_SCHEMA

    tables = read_tar(uri, options)
    yield next(tables, INTERLEAVED_SCHEMA.empty_table())
    yield from tables


def _write(
    uri: str, _: "pa.Schema", options: StorageOptions, limits: "TarLimits"
) -> "AbstractContextManager[TarShard]":
    from interleaved_assets.io.tar.writer import tar_shard

    return tar_shard(uri, storage_options=options, limits=limits)


def _shortfall(uri: str, options: "ReadOptions") -> str | None:
    from interleaved_assets.io.archive.source import open_tar

    with open_tar(uri, options.storage_options, by_ranges=True, limits=options.limits) as source:
        return source.index.shortfall


TAR: Final = ShardFormat(
    name="tar",
    endings=TAR_ENDINGS,
    read=_read,
    write=_write,
    version=0,
    has_layout=True,
    keeps_ending=False,
    can_reference=True,
    shortfall=_shortfall,
)
