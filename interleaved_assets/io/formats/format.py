"""The declaration of a format of shard files, and the registration of built-in formats and those of plugins."""

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from interleaved_assets.io.storage import StorageOptions
from interleaved_assets.model.errors import OptionError

if TYPE_CHECKING:  # declaring a format loads no reader
    import pyarrow as pa

    from interleaved_assets.io.parquet.writer import ParquetShard
    from interleaved_assets.io.storage.limits import TarLimits
    from interleaved_assets.io.tar.reader import ReadOptions
    from interleaved_assets.io.tar.writer import TarShard

    Read = Callable[[str, ReadOptions], Iterator[pa.Table]]
    Write = Callable[[str, pa.Schema, StorageOptions, TarLimits], AbstractContextManager[TarShard | ParquetShard]]
    Shortfall = Callable[[str, ReadOptions], str | None]


@dataclass(frozen=True)
class ShardFormat:
    """A format of shard files.

    Attributes:
        name: the name in commands and settings.
        endings: the endings of the names of its files, in lower case.
        read: yields tables of whole samples, all with one schema; at least one table.
        write: opens a file that appears complete at the end of the block, or not at all; None if the format is only
            read. A tar takes the schema from its rows, and Parquet has no limits.
        version: to be raised when a change of the reader changes the rows.
        magic: the first bytes of its files; empty if they differ.
        section: the name of its settings in ``[reading]``, and in ``ReadOptions.sections``; None if it has none.
        has_layout: whether ``ReadOptions.layout`` says what its files hold.
        shortfall: returns what shows that a file is incomplete, None if nothing does.
    """

    name: str
    endings: tuple[str, ...]
    read: "Read"
    write: "Write | None" = None
    version: int = 1
    magic: bytes = b""
    section: str | None = None
    has_layout: bool = False
    shortfall: "Shortfall" = lambda *_: None


_FORMATS: Final[dict[str, ShardFormat]] = {}


def register_format(added: ShardFormat) -> None:
    """Add a format, so that every command and the chain read its files.

    Raises:
        OptionError: the name or an ending is taken.
    """
    for one in _FORMATS.values():
        if one.name == added.name or {*one.endings} & {*added.endings}:
            raise OptionError(
                f"format {added.name!r} has the name or an ending of the format {one.name!r}: {', '.join(one.endings)}"
            )
    _FORMATS[added.name] = added


def unregister_format(name: str) -> None:
    """Remove the format ``name``."""
    del _FORMATS[name]


def all_formats() -> tuple[ShardFormat, ...]:
    """Return every format, in the order of registration."""
    return tuple(_FORMATS.values())


def shard_endings(*, writable: bool = False) -> tuple[str, ...]:
    """Return the endings of the files of all formats, or of those that can be written."""
    return tuple(ending for one in all_formats() if one.write or not writable for ending in one.endings)


def format_named(path: str, among: Collection[str] = ()) -> ShardFormat | None:
    """Return the format whose ending ``path`` has, in any case; None if there is none.

    Args:
        path: a path or a URL.
        among: names of the formats to look at; all if it is empty.
    """
    name = path.lower()
    return next((one for one in all_formats() if name.endswith(one.endings) and (not among or one.name in among)), None)
