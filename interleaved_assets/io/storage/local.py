"""Reads of local files by position. They are not memory-mapped: truncating a mapped file kills the process."""

import io
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from interleaved_assets.io.storage.filesystem import storage_errors
from interleaved_assets.model.errors import StorageError, StorageUnavailable

if TYPE_CHECKING:
    import pyarrow as pa

# Below this size, a bytes object takes less time than a buffer of Arrow.
_SMALL_BYTES: Final = 64 * 2**10


def check_regular(path: Path, uri: str) -> None:
    """Refuse a FIFO, socket or device: opening one may block, or have side effects. Folders pass."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise StorageError(f"cannot read {uri}: it is not a regular file but a FIFO, a socket or a device. Remove it.")


def check_name(uri: str) -> None:
    """Refuse a path that is not UTF-8, which some file systems allow: rows and records name the file."""
    if (text := displayable(uri)) != uri:
        raise StorageError(f"{text}: the file's name is not UTF-8; rename it")


def displayable(name: str) -> str:
    """Return ``name`` with bytes that are not UTF-8 escaped, for messages, which are stored as UTF-8."""
    return name.encode("utf-8", "backslashreplace").decode()


class LocalFile(io.RawIOBase):
    """A regular local file, open for reading, that must not change while it is open.

    Every read raises StorageUnavailable if the size or modification time has changed since the file was opened: that
    says nothing about the rows. If another file gets its name, reads return the content of the opened file.

    Attributes:
        size: in bytes.
    """

    _descriptor = -1  # Python also closes a file that could not be opened, and since 3.13 says so if that fails

    def __init__(self, path: Path, uri: str) -> None:
        check_name(str(path))
        check_regular(path, uri)
        # O_NONBLOCK: if it has become a FIFO since the check, open() must not wait for a writer
        self._descriptor, self._uri = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), uri
        found = os.fstat(self._descriptor)
        self.size, self._modified, self._position = found.st_size, found.st_mtime_ns, 0
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise IsADirectoryError("it is not a regular file")

    def read_at(self, offset: int, size: int) -> bytes | memoryview:
        """Read ``size`` bytes from ``offset``, fewer at the end of the file."""
        wanted = max(0, min(size, self.size - offset))
        if wanted <= _SMALL_BYTES:
            small = os.pread(self._descriptor, wanted, offset) if wanted else b""
            if len(small) == wanted:  # a file system may return fewer, and the loop below reads on
                self.check()
                return small
        import pyarrow as pa  # here and below: callers that only name or list files do not need it

        # Arrow's memory pool reuses pages: half the CPU time of new bytes objects
        data = memoryview(pa.allocate_buffer(wanted)).cast("B")
        self.read_into(offset, data)
        return data

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer``, one byte per element, with the bytes from ``offset``."""
        wanted = len(buffer)
        filled = 0
        # one call reads at most 2 GiB
        while filled < wanted and (count := os.preadv(self._descriptor, [buffer[filled:]], offset + filled)):
            filled += count
        self._check(filled == wanted)

    def native(self) -> "pa.NativeFile":
        """Return this file for Arrow, which reads it without Python's checks: call :meth:`check` afterwards."""
        import pyarrow as pa

        # by the descriptor, since the path may be another file by now
        return pa.OSFile(f"/dev/fd/{self._descriptor}")

    def check(self) -> None:
        """Refuse the file if it has changed."""
        self._check(is_whole=True)

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # typeshed has a private type for it
        """Implement :meth:`io.RawIOBase.readinto`."""
        with storage_errors(self._uri, "read"):  # a StorageError is not taken for an error of what it is copied to
            count = os.preadv(self._descriptor, [buffer], self._position)
            self._check(count > 0 or not len(buffer) or self._position >= self.size)
        self._position += count
        return count

    def read(self, size: int | None = -1) -> bytes:
        """Return the next ``size`` bytes, or all remaining ones; fewer only at the end."""
        return bytes(self.read_buffer(self.size if size is None or size < 0 else size))

    def read_buffer(self, size: int) -> "pa.Buffer":
        """Return the result of :meth:`read` without a copy; Arrow calls this method if it exists."""
        import pyarrow as pa

        data = self.read_at(self._position, size)
        self._position += len(data)
        return pa.py_buffer(data)

    def readall(self) -> bytes:
        return self.read()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self.size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        # forgotten first: a close that fails has closed it, and a second one may close a file that got its number
        descriptor, self._descriptor = self._descriptor, -1
        try:
            if descriptor >= 0:
                os.close(descriptor)
        finally:
            super().close()

    def _check(self, is_whole: bool) -> None:
        now = os.fstat(self._descriptor)
        if not is_whole or (now.st_size, now.st_mtime_ns) != (self.size, self._modified):
            raise StorageUnavailable(f"{self._uri} changed while it was read. Read it again once it is complete.")
