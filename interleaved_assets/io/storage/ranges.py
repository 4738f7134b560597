"""Ranges of a local file, whose bytes are read only when they are needed."""

from typing import Final, TypeAlias

import numpy as np

from interleaved_assets.io.storage.atomic import BytesLike
from interleaved_assets.io.storage.local import LocalFile

# Neighbouring bytes, such as a directory and its values or a small member and the next header, are read together.
_BLOCK_BYTES: Final = 8 * 2**10
_STEP: Final = _BLOCK_BYTES // 2
_KEPT_BLOCKS: Final = 256


class FileRange:
    """A range of an open file. It has a length and slices (step 1) like ``bytes``, without reading.

    ``bytes(range)``, :meth:`read` and :meth:`read_into` read it, and raise StorageError if the file has changed since
    it was opened. A range that reaches beyond the end of the file is cut there.
    """

    __slots__ = ("_file", "_offset", "_size")

    def __init__(self, file: LocalFile, offset: int, size: int) -> None:
        self._file, self._offset = file, offset
        self._size = max(0, min(size, file.size - offset))

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> "FileRange":
        start, end, _ = part.indices(self._size)
        return FileRange(self._file, self._offset + start, end - start)

    def __bytes__(self) -> bytes:
        return self.read(0, self._size)

    def read(self, at: int, size: int) -> bytes:
        """Return ``size`` bytes from ``at``, fewer at the end."""
        return bytes(self._file.read_at(self._offset + at, min(size, self._size - at)))

    def read_into(self, buffer: np.ndarray) -> None:
        """Read the range into ``buffer``: uint8, of the same length."""
        self._file.read_into(self._offset, buffer.data)


Content: TypeAlias = BytesLike | FileRange
"""Bytes in memory, or a range of a file; both slice and have a length."""


class BlockReader:
    """Small reads from bytes in memory or in a file, in blocks of 8 KiB.

    The last blocks are kept, at most 2 MiB of them.

    Attributes:
        data: the bytes that are read from; slices of a file's range are not read.
        size: their number.
    """

    def __init__(self, data: Content) -> None:
        self.data: memoryview | FileRange = data if isinstance(data, FileRange) else memoryview(data).cast("B")
        self.size = len(data)
        self._blocks: dict[int, bytes] = {}
        self._start, self._block = 0, b""

    def read(self, at: int, size: int) -> bytes:
        """Return ``size`` bytes from ``at``, fewer at the end."""
        first = at - self._start
        if first < 0 or first + size > len(self._block):
            if size > _STEP:
                return self._read(at, size)
            # blocks overlap by half, so that a small read across a border takes one read too
            self._start = at - at % _STEP
            first = at - self._start
            if self._start not in self._blocks:
                if len(self._blocks) == _KEPT_BLOCKS:
                    self._blocks.clear()
                self._blocks[self._start] = self._read(self._start, _BLOCK_BYTES)
            self._block = self._blocks[self._start]
        return self._block[first : first + size]

    def _read(self, at: int, size: int) -> bytes:
        return self.data.read(at, size) if isinstance(self.data, FileRange) else bytes(self.data[at : at + size])
