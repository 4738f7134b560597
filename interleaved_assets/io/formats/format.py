"""The declaration of a format of shard files, and the registration of built-in formats and those of plugins."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel

from interleaved_assets.io.storage import StorageOptions, storage_errors
from interleaved_assets.model.errors import InterleavedError, OptionError, ShardError, describe

if TYPE_CHECKING:  # declaring a format loads no reader
    import pyarrow as pa

    from interleaved_assets.io.parquet.writer import ParquetShard
    from interleaved_assets.io.storage.limits import TarLimits
    from interleaved_assets.io.tar.reader import ReadOptions
    from interleaved_assets.io.tar.writer import TarShard

    Read = Callable[[str, ReadOptions], Iterator[pa.Table]]
    ReadFiles = Callable[[Sequence[str], ReadOptions], Iterator[pa.Table]]
    Fetch = Callable[[str, Sequence[str], StorageOptions, TarLimits], Iterator[tuple[str, bytes | str]]]
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
        version: to be raised when a change of the reader changes the rows; 0 if the version of the stage ``normalized``
            is raised instead.
        magic: the first bytes of its files; empty if they differ.
        section: the name of its settings in ``[reading]``, and in ``ReadOptions.sections``; None if it has none.
        settings: the model of that section, frozen and with a default for each setting; its docstring describes it.
            Formats with the same section have the same model.
        paths: the settings of the section that name a file or folder, relative to the settings file.
        has_layout: whether ``ReadOptions.layout`` says what its files hold.
        keeps_ending: whether the key of a shard, and the name of what is converted from it, has the ending of its file.
        only_bundled: whether its files are shards in bundles only (``storage.bundles``), and no shards by themselves.
        read_files: yields tables of the documents of several files of one folder, all with one schema; None if they
            cannot be bundled. A damaged file is an error of its document.
        beside: endings of files that belong to the file with the same name before the ending, and come with it.
        can_reference: whether ``read`` heeds ``ReadOptions.by_reference``.
        fetch: yields parts of a file (``SourceRef.part``), each with its bytes or a row error, in any order; None if
            its rows have no parts.
        shortfall: returns what shows that a file is incomplete, None if nothing does.
    """

    name: str
    endings: tuple[str, ...]
    read: "Read"
    write: "Write | None" = None
    version: int = 1
    magic: bytes = b""
    section: str | None = None
    settings: type[BaseModel] | None = None
    paths: tuple[str, ...] = ()
    has_layout: bool = False
    keeps_ending: bool = True
    can_reference: bool = False
    only_bundled: bool = False
    read_files: "ReadFiles | None" = None
    beside: tuple[str, ...] = ()
    fetch: "Fetch | None" = None
    shortfall: "Shortfall" = lambda *_: None

    def tables(self, uri: str, options: "ReadOptions", files: Sequence[str] = ()) -> "Iterator[pa.Table]":
        """Yield the tables of ``uri`` by ``read``, or those of the ``files`` of a bundle by ``read_files``.

        Raises:
            StorageError: the storage failed.
            ShardError: ``read`` raised an exception of another package.
        """
        try:
            with storage_errors(uri, "read"):
                yield from self.read_files(files, options) if files and self.read_files else self.read(uri, options)
        except (InterleavedError, MemoryError):
            raise
        except Exception as error:  # a plugin raises exceptions of any type
            raise ShardError(f"{uri}: the reader of the format {self.name!r} fails: {describe(error)}") from error


_FORMATS: Final[dict[str, ShardFormat]] = {}


def register_format(added: ShardFormat) -> None:
    """Add a format, so that every command and the chain read its files.

    Raises:
        OptionError: the name or an ending is taken, an ending lacks its dot or has capital letters, or the section is
            given without its model or with another one.
    """
    if isinstance(added.endings, str) or not all(
        re.fullmatch(r"\..+", one) and one == one.lower() for one in added.endings
    ):
        raise OptionError(
            f"format {added.name!r}: endings has to be a tuple of endings in lower case, such as ('.txt',)"
        )
    if (added.section is None) != (added.settings is None):
        raise OptionError(f"format {added.name!r} has a section or settings: it needs both or none")
    if (known := format_sections().get(added.section or "")) is not None and known is not added.settings:
        raise OptionError(
            f"format {added.name!r} has the section {added.section!r} of another format, and other settings"
        )
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


def format_sections() -> dict[str, type[BaseModel]]:
    """Return the model of each section that formats have in ``[reading]``, by its name."""
    return {one.section: one.settings for one in all_formats() if one.section is not None and one.settings is not None}


def shard_endings(*, writable: bool = False) -> tuple[str, ...]:
    """Return the endings of the files that are shards by themselves, or of those that can be written."""
    formats = (one for one in all_formats() if not one.only_bundled and (one.write or not writable))
    return tuple(ending for one in formats for ending in one.endings)


def format_named(path: str, among: Collection[str] = ()) -> ShardFormat | None:
    """Return the format whose ending ``path`` has, in any case; None if there is none.

    Args:
        path: a path or a URL.
        among: names of the formats to look at; all if it is empty.
    """
    name = path.lower()
    return next((one for one in all_formats() if name.endswith(one.endings) and (not among or one.name in among)), None)
