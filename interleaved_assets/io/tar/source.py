"""A tar opened for reading: mapped into memory where it is local, else copied to a temporary file or read by ranges."""

import gzip
import mmap
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO, Final

from interleaved_assets.io.storage import StorageOptions, is_local, open_input
from interleaved_assets.io.storage.atomic import BytesLike
from interleaved_assets.io.tar.index import TarIndex, TarMember, index_tar
from interleaved_assets.model.errors import ShardError

_GZIP_MAGIC: Final = b"\x1f\x8b"
_COPY_BYTES: Final = 16 * 2**20


@dataclass(frozen=True)
class TarSource:
    """The members of a tar, and their bytes.

    Attributes:
        uri: where the tar stands.
        size: of the tar in bytes, decompressed where it was compressed.
        has_offsets: whether a member's offset is one in the file at ``uri``, as it is not in a compressed one.
        broken_off: why decompressing ended early, None where it did not.
    """

    uri: str
    size: int
    has_offsets: bool
    broken_off: str | None
    _map: mmap.mmap | None
    _file: BinaryIO | None

    @property
    def is_mapped(self) -> bool:
        """Whether any byte can be had at no cost, without a request to a storage."""
        return self._map is not None

    @cached_property
    def index(self) -> TarIndex:
        """The members.

        Raises:
            ShardError: it is not a tar.
        """
        index = index_tar(lambda offset, size: bytes(self.range(offset, size)), self.size, self.uri)
        return index if self.broken_off is None else index._replace(damage=self.broken_off, is_complete=False)

    def range(self, offset: int, size: int) -> BytesLike:
        """So many bytes from ``offset``, fewer at the end; a view where the tar is mapped."""
        if self._map is not None:
            return memoryview(self._map)[offset : offset + size]
        assert self._file is not None
        self._file.seek(offset)
        return self._file.read(size)

    def content(self, member: TarMember) -> BytesLike:
        """The bytes of ``member``; fewer than its size where the tar is cut in it."""
        return self.range(member.offset, member.size)

    def is_cut(self, member: TarMember) -> bool:
        """Whether the tar ends within ``member``."""
        return member.offset + member.size > self.size


@contextmanager
def open_tar(uri: str, storage_options: StorageOptions = None, *, by_ranges: bool = False) -> Iterator[TarSource]:
    """Open the tar at ``uri``, which may be compressed with gzip whatever its name.

    A local tar is mapped; a remote or compressed one is copied into a temporary file first, and that is mapped. With
    ``by_ranges`` a remote one that is not compressed is not copied: what is asked for is fetched, and nothing else.

    The file must not be cut short while it is open; replacing it by another is no harm.

    Raises:
        StorageError: it is missing or unreadable, or there is no room for the copy.
        ShardError: it is empty, or its compressed data are damaged.
    """
    with open_input(uri, storage_options) as file:
        is_compressed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        size = file.seek(0, 2)
        file.seek(0)
        if not is_compressed and (is_local(uri) or by_ranges):
            mapped = _mapped(file, size, uri) if is_local(uri) else None
            yield TarSource(uri, size, True, None, mapped, None if mapped else file)
            return
        with tempfile.TemporaryFile(prefix="interleaved-") as copy:
            broken_off = None
            if is_compressed:
                broken_off = _decompress(file, copy, uri)
            else:
                shutil.copyfileobj(file, copy, _COPY_BYTES)
            copy.flush()
            size = copy.tell()
            yield TarSource(uri, size, not is_compressed, broken_off, _mapped(copy, size, uri), None)


def _mapped(file: BinaryIO, size: int, uri: str) -> mmap.mmap:
    if size == 0:
        raise ShardError(f"{uri} is empty: not even the end mark of a tar is there. Fetch or write it anew.")
    # closed by the garbage collector, when the last view is gone
    return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)


def _decompress(source: BinaryIO, copy: BinaryIO, uri: str) -> str | None:
    """Write what ``source`` holds to ``copy``; gives why it ended early, None where it did not."""
    try:
        with gzip.GzipFile(fileobj=source) as plain:
            # read1 gives what was decompressed before the damage, read would lose it
            while part := plain.read1(_COPY_BYTES):
                copy.write(part)
    except EOFError:
        return f"the gzip data end in the middle, after {copy.tell()} bytes of tar"
    except zlib.error as error:
        return f"the gzip data are damaged after {copy.tell()} bytes of tar: {error}"
    except gzip.BadGzipFile as error:
        raise ShardError(f"{uri}: the gzip data are damaged: {error}. Fetch or write it anew.") from error
    return None
