"""The format of tars of documents: MINT-1T's, and those that this package writes."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from interleaved_assets.io.archive.source import open_tar
from interleaved_assets.io.formats.format import ShardFormat
from interleaved_assets.io.tar.layout import TAR_ENDINGS
from interleaved_assets.io.tar.reader import ReadOptions, read_tar
from interleaved_assets.io.tar.writer import tar_shard
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA


def _read(uri: str, options: ReadOptions) -> Iterator[pa.Table]:
    tables = read_tar(uri, options)
    yield next(tables, INTERLEAVED_SCHEMA.empty_table())
    yield from tables


def _shortfall(uri: str, options: ReadOptions) -> str | None:
    with open_tar(uri, options.storage_options, by_ranges=True, limits=options.limits) as source:
        return source.index.shortfall


TAR: Final = ShardFormat(
    name="tar",
    endings=TAR_ENDINGS,
    read=_read,
    write=lambda uri, _, options, limits: tar_shard(uri, storage_options=options, limits=limits),
    has_layout=True,
    shortfall=_shortfall,
)
