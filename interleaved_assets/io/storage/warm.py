"""Local copies of the remote files that this process has just written, for the stages that read them next.

A shard goes through several stages in one run, and each reads what the one before wrote: without a copy, the same bytes
come back from the bucket once or twice a stage. A copy is used only as long as the object has the stamp that it got
when it was written, which takes one small request.

Copies are files without a name in the folder for temporary files (``TMPDIR``): they are gone with the process, however
it ends. Without space on that disk there are no copies, and files are read from where they are.
"""

import contextlib
import logging
import os
import tempfile
import threading
from pathlib import Path
from typing import BinaryIO, Final

from fsspec.spec import AbstractFileSystem

from interleaved_assets.io.storage.filesystem import StorageOptions, filesystem
from interleaved_assets.io.storage.local import LocalFile
from interleaved_assets.io.storage.stamps import read_stamp

logger = logging.getLogger(__name__)

_MOST: Final = 256
"""Copies that are kept: each is an open file, of which a process may have 1,024 on many systems."""

_Place = tuple[AbstractFileSystem, str]


class WarmCopy:
    """The copy of a file that is being written. What :func:`new_copy` gives."""

    def __init__(self, place: _Place) -> None:
        self._place = place
        self._file: BinaryIO | None = tempfile.TemporaryFile(prefix="interleaved-")  # noqa: SIM115  kept while in use
        self.size, self.stamp = 0, ""
        _copies.begin(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append ``data``, unless the copy was given up."""
        if self._file is None:
            return
        self.size += data.nbytes if isinstance(data, memoryview) else len(data)
        try:
            if not _copies.make_room():
                self.drop()
            else:
                self._file.write(data)
        except OSError as error:
            logger.warning("%s is not kept on the local disk for the next stages: %s", self._place[1], error)
            self.drop()

    def keep(self, stamp: str | None) -> None:
        """Keep the copy of the file, which is complete and has ``stamp``; None where the storage does not tell it."""
        if self._file is None:
            return
        try:
            self._file.flush()
        except OSError as error:
            logger.warning("%s is not kept on the local disk for the next stages: %s", self._place[1], error)
            stamp = None
        if stamp is None:
            self.drop()
        else:
            self.stamp = stamp
            _copies.add(self._place, self)

    def drop(self) -> None:
        """Give the copy up and free its space."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # closing writes what is left, for which there may be no space
                self._file.close()
            self._file = None
        _copies.end(self)

    def open(self, uri: str) -> LocalFile:
        """Open it for reading, independently of this object; messages name ``uri``."""
        assert self._file is not None
        return LocalFile(Path(f"/dev/fd/{self._file.fileno()}"), uri)


class _Copies:
    """The copies of this process: at most :data:`_MOST`, and ``limit`` bytes, those being written included.

    Where space runs out, the copy used last makes room: stages go through the shards of a run in one order, so it is
    the one that will be used again last, if at all.
    """

    def __init__(self) -> None:
        self.limit = 0
        self._lock = threading.Lock()
        self._by_place: dict[_Place, WarmCopy] = {}  # the one used last at the end
        self._begun: set[WarmCopy] = set()

    def begin(self, copy: WarmCopy) -> None:
        """Count ``copy``, which is being written."""
        with self._lock:
            self._begun.add(copy)

    def end(self, copy: WarmCopy) -> None:
        """No longer count ``copy``; without the lock, which is held where one makes room for another."""
        self._begun.discard(copy)

    def make_room(self) -> bool:
        """Drop copies until those that are being written fit beside the others; False if these alone do not fit."""
        with self._lock:
            written = sum(copy.size for copy in tuple(self._begun))
            fits = written <= self.limit
            room = self.limit - written if fits else self.limit
            while self._by_place and sum(copy.size for copy in self._by_place.values()) > room:
                self._by_place.popitem()[1].drop()
            return fits

    def add(self, place: _Place, copy: WarmCopy) -> None:
        with self._lock:
            self._begun.discard(copy)
            if (before := self._by_place.pop(place, None)) is not None:
                before.drop()
            while len(self._by_place) >= _MOST:
                self._by_place.popitem()[1].drop()
            self._by_place[place] = copy

    def find(self, place: _Place) -> WarmCopy | None:
        with self._lock:
            return self._by_place.get(place)

    def open(self, place: _Place, copy: WarmCopy, uri: str) -> LocalFile | None:
        """Open ``copy`` and note its use; None if it was dropped meanwhile."""
        with self._lock:
            if self._by_place.get(place) is not copy:
                return None
            self._by_place[place] = self._by_place.pop(place)
            return copy.open(uri)

    def remove(self, place: _Place, copy: WarmCopy) -> None:
        with self._lock:
            if self._by_place.get(place) is copy:
                del self._by_place[place]
                copy.drop()


_copies: Final = _Copies()


def keep_copies(limit: int) -> None:
    """From now on, keep at most ``limit`` bytes of copies; 0 keeps none, and drops those there are."""
    _copies.limit = limit
    _copies.make_room()


def new_copy(fs: AbstractFileSystem, path: str) -> WarmCopy | None:
    """A copy to write beside the remote file ``path``; None where none are kept, or there is no place for files."""
    if not _copies.limit or not os.path.isdir("/dev/fd"):  # noqa: PTH112  a test of the system, not of a path
        return None
    try:
        return WarmCopy((fs, path))
    except OSError as error:
        logger.warning("%s is not kept on the local disk for the next stages: %s", path, error)
        return None


def open_copy(uri: str, storage_options: StorageOptions = None) -> LocalFile | None:
    """Open the copy of the remote file ``uri``, if this process wrote the file as it is now; else None.

    Raises:
        StorageError: the storage cannot be reached.
    """
    if not _copies.limit:
        return None
    place = filesystem(uri, storage_options)
    copy = _copies.find(place)
    if copy is None:
        return None
    if read_stamp(uri, storage_options) != copy.stamp:
        _copies.remove(place, copy)
        return None
    return _copies.open(place, copy, uri)
