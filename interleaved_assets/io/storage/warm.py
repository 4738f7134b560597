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

_lock = threading.Lock()
_limit = 0
"""Bytes that copies may take, those being written included."""
_kept: Final[dict[_Place, "WarmCopy"]] = {}
"""The one used last at the end. Where space runs out it makes room: stages go through the shards of a run in one order,
so it is the one that will be used again last, if at all."""
_begun: Final[set["WarmCopy"]] = set()
"""Those that are being written."""


class WarmCopy:
    """The copy of a file that is being written. What :func:`new_copy` gives."""

    def __init__(self, place: _Place) -> None:
        self._place = place
        self._file: BinaryIO | None = tempfile.TemporaryFile(prefix="interleaved-")  # noqa: SIM115  kept while in use
        self.size, self.stamp = 0, ""
        with _lock:
            _begun.add(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append ``data``, unless the copy was given up."""
        if self._file is None:
            return
        self.size += data.nbytes if isinstance(data, memoryview) else len(data)
        try:
            if _make_room():
                self._file.write(data)
            else:
                self.drop()
        except OSError as error:
            self._fail(error)

    def keep(self, stamp: str | None) -> None:
        """Keep the copy of the file, which is complete and has ``stamp``; None where the storage does not tell it."""
        if self._file is None:
            return
        if stamp is None:
            self.drop()
            return
        self.stamp = stamp
        try:
            self._file.flush()
        except OSError as error:
            self._fail(error)
            return
        with _lock:
            _begun.discard(self)
            if (before := _kept.pop(self._place, None)) is not None:
                before.drop()
            while len(_kept) >= _MOST:
                _kept.popitem()[1].drop()
            _kept[self._place] = self

    def drop(self) -> None:
        """Give the copy up and free its space."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # closing writes what is left, for which there may be no space
                self._file.close()
        self._file = None
        _begun.discard(self)  # without the lock, which is held where one makes room for another

    def open(self, uri: str) -> LocalFile:
        """Open it for reading, independently of this object; messages name ``uri``."""
        assert self._file is not None
        return LocalFile(Path(f"/dev/fd/{self._file.fileno()}"), uri)

    def _fail(self, error: OSError) -> None:
        logger.warning("%s is not kept on the local disk for the next stages: %s", self._place[1], error)
        self.drop()


def keep_copies(limit: int) -> None:
    """From now on, keep at most ``limit`` bytes of copies; 0 keeps none, and drops those there are."""
    global _limit
    _limit = limit
    _make_room()


def new_copy(fs: AbstractFileSystem, path: str) -> WarmCopy | None:
    """A copy to write beside the remote file ``path``; None where none are kept, or there is no place for files."""
    if not _limit or not os.path.isdir("/dev/fd"):  # noqa: PTH112  a test of the system, not of a path
        return None
    try:
        return WarmCopy((fs, path))
    except OSError as error:
        logger.warning("%s is not kept on the local disk for the next stages: %s", path, error)
        return None


def open_copy(uri: str, storage_options: StorageOptions = None) -> LocalFile | None:
    """Open the copy of the remote file ``uri``, if this process wrote the file as it is now; else None."""
    if not _limit:
        return None
    place = filesystem(uri, storage_options)
    with _lock:
        copy = _kept.get(place)
    if copy is None:
        return None
    is_current = read_stamp(uri, storage_options) == copy.stamp
    with _lock:
        if _kept.get(place) is not copy:
            return None  # it was dropped meanwhile
        del _kept[place]
        if not is_current:
            copy.drop()
            return None
        _kept[place] = copy
        return copy.open(uri)


def _make_room() -> bool:
    """Drop copies until those that are being written fit beside the others; False if these alone do not fit."""
    with _lock:
        written = sum(copy.size for copy in tuple(_begun))
        fits = written <= _limit
        room = _limit - written if fits else _limit
        while _kept and sum(copy.size for copy in _kept.values()) > room:
            _kept.popitem()[1].drop()
        return fits
