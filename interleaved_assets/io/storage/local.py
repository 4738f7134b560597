"""Local files, read by position: never mapped, since a file that is cut while it is mapped ends the process."""

import io
import os
import stat
from pathlib import Path

import pyarrow as pa

from interleaved_assets.model.errors import StorageError


def check_regular(path: Path, uri: str) -> None:
    """Refuse what is no regular file: a FIFO or a device may block whoever opens it, or be changed by that.

    Raises:
        StorageError: it is a FIFO, a socket or a device, or a link to one. Folders are left to the one who opens them.
        OSError: it is not there.
    """
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise StorageError(f"cannot read {uri}: it is not a regular file but a FIFO, a socket or a device. Remove it.")


class LocalFile(io.RawIOBase):
    """A regular local file that is open for reading and has to stay as it is.

    Every read raises StorageError where size or modification time are no longer those at the opening. A file that is
    replaced by another of its name goes on to be read as it was.

    Attributes:
        size: in bytes.
    """

    def __init__(self, path: Path, uri: str) -> None:
        check_regular(path, uri)
        # should it have become a FIFO since, O_NONBLOCK keeps the opening from waiting for a writer
        self._descriptor, self._uri = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), uri
        found = os.fstat(self._descriptor)
        self.size, self._modified, self._position = found.st_size, found.st_mtime_ns, 0
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise IsADirectoryError(f"cannot read {uri}: it is not a regular file")

    def read_at(self, offset: int, size: int) -> memoryview:
        """So many bytes from ``offset``, fewer at the end.

        Raises:
            StorageError: the file has changed since it was opened.
        """
        wanted = max(0, min(size, self.size - offset))
        # from Arrow's pool, which keeps pages: half the processor time of new bytes each time
        data = memoryview(pa.allocate_buffer(wanted)).cast("B")
        filled = 0
        # one call gives 2 GiB at most
        while filled < wanted and (count := os.preadv(self._descriptor, [data[filled:]], offset + filled)):
            filled += count
        self._check(filled == wanted)
        return data

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # typeshed has a private type for it
        """See :class:`io.RawIOBase`."""
        count = os.preadv(self._descriptor, [buffer], self._position)
        self._check(count > 0 or not len(buffer) or self._position >= self.size)
        self._position += count
        return count

    def read(self, size: int | None = -1) -> bytes:
        """The next ``size`` bytes, or all that are left; fewer only at the end."""
        return bytes(self.read_buffer(self.size if size is None or size < 0 else size))

    def read_buffer(self, size: int) -> pa.Buffer:
        """The same without a copy; Arrow looks for this method."""
        data = self.read_at(self._position, size)
        self._position += len(data)
        return pa.py_buffer(data)

    def readall(self) -> bytes:
        """All that is left."""
        return self.read()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """See :class:`io.IOBase`."""
        self._position = offset + (0, self._position, self.size)[whence]
        return self._position

    def tell(self) -> int:
        """See :class:`io.IOBase`."""
        return self._position

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """See :class:`io.IOBase`."""
        return self._descriptor

    def close(self) -> None:
        """See :class:`io.IOBase`."""
        if not self.closed:
            os.close(self._descriptor)
        super().close()

    def _check(self, is_whole: bool) -> None:
        now = os.fstat(self._descriptor)
        if not is_whole or (now.st_size, now.st_mtime_ns) != (self.size, self._modified):
            raise StorageError(f"{self._uri} changed while it was read. Read it again once it is complete.")
