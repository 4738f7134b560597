"""The object that carries all that is known of a format of shard files."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pyarrow as pa

from interleaved_assets.io.parquet.writer import ParquetShard
from interleaved_assets.io.storage import StorageOptions
from interleaved_assets.io.storage.limits import TarLimits
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.io.tar.writer import TarShard


@dataclass(frozen=True)
class ShardFormat:
    """A format of shard files.

    Attributes:
        name: as commands show it.
        endings: endings of the names of its files, in lower case.
        read: yields tables of whole samples, all with one schema; at least one table.
        write: opens a file that appears complete at the end of the block, or not at all. A tar takes the schema from
            its rows, and Parquet has no limits.
        magic: the first bytes of its files; empty if they differ.
        has_layout: whether ``ReadOptions.layout`` says what its files hold.
        shortfall: returns what shows that a file is incomplete, None if nothing does.
    """

    name: str
    endings: tuple[str, ...]
    read: Callable[[str, ReadOptions], Iterator[pa.Table]]
    write: Callable[[str, pa.Schema, StorageOptions, TarLimits], AbstractContextManager[TarShard | ParquetShard]]
    magic: bytes = b""
    has_layout: bool = False
    shortfall: Callable[[str, ReadOptions], str | None] = lambda *_: None
