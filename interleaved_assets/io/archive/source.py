"""Access to a tar for reading: in place if it is local, else from a temporary copy or by byte ranges."""

import bz2
import gzip
import lzma
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, BinaryIO, Final

from interleaved_assets.io.archive.index import TarIndex, TarMember, check_size, index_tar
from interleaved_assets.io.storage import (
    StorageOptions,
    is_local,
    is_storage_failure,
    local_path,
    open_input,
    scratch_errors,
    scratch_file,
    storage_errors,
)
from interleaved_assets.io.storage.atomic import BytesLike
from interleaved_assets.io.storage.inputs import COPY_BYTES
from interleaved_assets.io.storage.limits import LIMITS, TarLimits
from interleaved_assets.io.storage.local import LocalFile
from interleaved_assets.io.storage.ranges import BlockReader, Content, FileRange
from interleaved_assets.model.errors import ShardError, StorageUnavailable

_OPENERS: Final[dict[bytes, Callable[..., Any]]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
_COPY_BYTES: Final = 16 * 2**20


@dataclass(frozen=True)
class TarSource:
    """The members of a tar, and their bytes.

    Attributes:
        uri: path or URL of the tar.
        size: size of the tar in bytes, after decompression.
        has_offsets: whether members' offsets are offsets in the file at ``uri``; False for a compressed tar.
        broken_off: the reason why decompression ended early; None if it reached the end.
    """

    uri: str
    size: int
    has_offsets: bool
    broken_off: str | None
    _file: LocalFile | BinaryIO

    @property
    def is_on_disk(self) -> bool:
        """True if bytes are read from a local file, without a request to remote storage."""
        return isinstance(self._file, LocalFile)

    @cached_property
    def index(self) -> TarIndex:
        """The index of the members."""
        local = BlockReader(FileRange(self._file, 0, self.size)) if isinstance(self._file, LocalFile) else None
        index = index_tar(local.read if local else lambda at, size: bytes(self.range(at, size)), self.size, self.uri)
        return index if self.broken_off is None else index._replace(damage=self.broken_off, is_complete=False)

    def range(self, offset: int, size: int) -> BytesLike:
        """Read ``size`` bytes from ``offset``, fewer at the end."""
        if isinstance(self._file, LocalFile):
            return self._file.read_at(offset, size)
        self._file.seek(offset)
        data = self._file.read(size)
        if len(data) < min(size, self.size - offset):
            raise _shrunk(self.uri)
        return data

    def content(self, member: TarMember) -> Content:
        """Return the bytes of ``member``, as a range if they are on disk.

        They are fewer than its size if the tar is truncated in it.
        """
        if isinstance(self._file, LocalFile):
            return FileRange(self._file, member.offset, member.size)
        return self.range(member.offset, member.size)

    def is_cut(self, member: TarMember) -> bool:
        """Return whether the tar ends within ``member``."""
        return member.offset + member.size > self.size


@contextmanager
def open_tar(
    uri: str,
    storage_options: StorageOptions = None,
    *,
    by_ranges: bool = False,
    limits: TarLimits = LIMITS,
) -> Iterator[TarSource]:
    """Open the tar at ``uri``, which may be compressed with gzip, bzip2 or xz, under any name.

    A local tar is read in place; a remote or compressed one is first copied to a temporary file. With ``by_ranges`` a
    remote uncompressed tar is not copied; only the requested byte ranges are fetched.

    The file must not change while it is open; it may be replaced by another file.

    Raises:
        StorageError: it is missing or unreadable, the disk has no space for the copy, or it changed while it was read.
        ShardError: it is empty, its compressed data are damaged, or unpack to more than ``limits.max_unpacked_bytes``.
    """
    with open_input(uri, storage_options) as file:
        magic = file.read(max(map(len, _OPENERS)))
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        check_size(size, uri)
        opener = next((opener for front, opener in _OPENERS.items() if magic.startswith(front)), None)
        if opener is None and is_local(uri):
            with storage_errors(uri, "read"), LocalFile(local_path(uri), uri) as local:
                yield TarSource(uri, local.size, True, None, local)
            return
        if opener is None and by_ranges:
            yield TarSource(uri, size, True, None, file)
            return
        with scratch_file(uri) as copy:
            broken_off = None
            with scratch_errors(uri):
                if opener is not None:
                    broken_off = _decompress(opener(file), copy, uri, limits.max_unpacked_bytes)
                else:
                    shutil.copyfileobj(file, copy, COPY_BYTES)
                copy.flush()
            if not file.read(1) and file.tell() < size:
                raise _shrunk(uri)
            if broken_off is not None and not copy.tell():
                raise ShardError(f"{uri}: {broken_off}. Fetch or write it again.")
            check_size(copy.tell(), uri)
            with LocalFile(Path(f"/dev/fd/{copy.fileno()}"), uri) as local:
                yield TarSource(uri, local.size, opener is None, broken_off, local)


def _shrunk(uri: str) -> StorageUnavailable:
    """Return the error for a remote file that ends before the size that it had when it was opened."""
    return StorageUnavailable(f"{uri} changed while it was read. Read it again once it is complete.")


def _decompress(plain: Any, copy: IO[bytes], uri: str, limit: int) -> str | None:
    """Copy the decompressed bytes of ``plain`` to ``copy``; return why this ended early, or None."""
    while True:
        try:
            # read1 returns the bytes that were decompressed before the damage; read would lose them
            part = plain.read1(_COPY_BYTES)
        except EOFError:
            return f"the compressed data end in the middle, after {copy.tell()} bytes of tar"
        except (zlib.error, lzma.LZMAError) as error:
            return _damaged(copy, error)
        except gzip.BadGzipFile as error:
            raise ShardError(f"{uri}: the gzip data are damaged: {error}. Fetch or write it again.") from error
        except OSError as error:
            if is_storage_failure(error):
                raise
            return _damaged(copy, error)  # bz2 has no exception of its own
        if not part:
            return None
        if copy.tell() + len(part) > limit:
            raise ShardError(
                f"{uri} unpacks to more than {limit} bytes. Raise max_unpacked_bytes if it is meant to, "
                "or unpack it and give the plain tar."
            )
        copy.write(part)


def _damaged(copy: IO[bytes], error: Exception) -> str:
    return f"the compressed data are damaged after {copy.tell()} bytes of tar: {error}"
