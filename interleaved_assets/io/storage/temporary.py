"""Temporary files beside the final one, whose lock shows whether the writer is alive.

A writer holds a lock (``flock``) on its temporary file until that has its final name or is gone. The system takes back
the locks of a process that dies, however it dies, so a temporary file without a lock is a dead writer's: the next
writer of the same file takes it over, and that of a live one is left alone. Names are numbered and tried in turn, so
that finding what is left over needs no listing of the folder, which may hold a hundred thousand files.

Where the filesystem has no locks, names are random, and :func:`clear_temporaries` lists the folder and removes all of
them. A writer that is alive then fails when it renames its file, and its bytes appear nowhere.
"""

import contextlib
import errno
import fcntl
import hashlib
import itertools
import os
import re
import tempfile
import time
import uuid
from pathlib import Path
from typing import BinaryIO, Final

from interleaved_assets.io.storage.stamps import local_stamp

_BUFFER_BYTES: Final = 256 * 2**10
_WITHOUT_LOCKS: Final = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK})
# most systems take 255 bytes, and the rest of a temporary name takes up to 38
_NAME_BYTES: Final = 210

_locking_devices: dict[int, bool] = {}
"""Whether the filesystem has locks, by its device number."""


class TemporaryFile:
    """An empty file beside ``target``, to be filled and then committed or discarded; missing folders are made.

    Attributes:
        file: what to write to; closed by :meth:`commit` and :meth:`discard`.
    """

    def __init__(self, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        self._target = target
        self._path, self._locked = _first_free(target)
        self.file: BinaryIO = os.fdopen(os.dup(self._locked), "wb", buffering=_BUFFER_BYTES)

    def commit(self) -> str:
        """Give the file its final name, in place of one that has it; gives the stamp of the file."""
        # closed first, since a network filesystem may only then find that there is no room; the lock outlives it
        self.file.close()
        # the system's own time is that of its last tick, some milliseconds ago, and an inode may be used again: two
        # files of the same size that take this name one after the other must not have the same stamp
        now = time.time_ns()
        with contextlib.suppress(OSError):  # not every filesystem lets a time be set
            os.utime(self._locked, ns=(now, now))
        # of the open file, before it is renamed: behind the name there may be that of another writer right afterwards
        stamp = local_stamp(os.fstat(self._locked))
        self._path.replace(self._target)
        self._unlock()
        return stamp

    def discard(self) -> None:
        """Remove the file."""
        try:
            self._path.unlink(missing_ok=True)
        finally:
            self._unlock()
            # closing flushes what is buffered, which fails again on a full disk; the handle is closed nevertheless
            with contextlib.suppress(OSError):
                self.file.close()

    def _unlock(self) -> None:
        descriptor, self._locked = self._locked, -1
        if descriptor >= 0:
            os.close(descriptor)


def random_name(name: str) -> str:
    """A name for a temporary file of ``name`` that no other has. Its ending keeps it out of every search for shards."""
    return f".{_cut(name)}.{uuid.uuid4().hex}.tmp"


def is_temporary_of(name: str, found: str) -> bool:
    """Whether ``found`` is the name of a temporary file of this very ``name``."""
    return re.fullmatch(rf"\.{re.escape(_cut(name))}\.(\d+|[0-9a-f]{{32}})\.tmp", found) is not None


def clear_temporaries(target: Path) -> None:
    """Remove what dead writers of ``target`` have left beside it. Lists the folder."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for found in target.parent.iterdir():
            if is_temporary_of(target.name, found.name):
                _remove_if_dead(found)


def has_locks(folder: Path) -> bool:
    """Whether the filesystem of ``folder`` has locks; also where there is no such folder, since nothing lies in it."""
    try:
        device = folder.stat().st_dev
    except (FileNotFoundError, NotADirectoryError):
        return True
    if device not in _locking_devices:
        with tempfile.TemporaryFile(dir=folder) as file:
            _locking_devices[device] = _lock(file.fileno()) is not None
    return _locking_devices[device]


def _first_free(target: Path) -> tuple[Path, int]:
    """The first numbered name that no live writer has: its file, emptied, as a descriptor with the lock."""
    for number in itertools.count():
        path = _numbered(target, number)
        while (descriptor := _open(path, os.O_CREAT)) is not None:
            has_lock = _lock(descriptor)
            if has_lock is None:
                os.close(descriptor)
                path.unlink(missing_ok=True)
                path = path.with_name(random_name(target.name))
                return path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            if has_lock and _is_at(path, descriptor):
                os.ftruncate(descriptor, 0)
                # one that died while a live one had this number has left a higher one
                for higher in itertools.count(number + 1):
                    if not _remove_if_dead(_numbered(target, higher)):
                        return path, descriptor
            os.close(descriptor)
            if not has_lock:
                break
            # its writer has renamed or removed it between our opening and locking it: the name is free now
    raise AssertionError("numbers do not end")


def _remove_if_dead(path: Path) -> bool:
    """Remove the temporary file unless its writer is alive; whether it was there and is gone."""
    descriptor = _open(path)
    if descriptor is None:
        return False
    try:
        is_dead = _lock(descriptor) is not False and _is_at(path, descriptor)
        if is_dead:
            path.unlink(missing_ok=True)
        return is_dead
    finally:
        os.close(descriptor)


def _open(path: Path, flags: int = 0) -> int | None:
    """A descriptor of the file; None where it is not there, or is somebody else's."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o666)
    except FileNotFoundError:
        if flags & os.O_CREAT:
            raise
        return None
    except PermissionError:
        if not os.path.lexists(path):  # it is the folder that nothing may be made in
            raise
        return None


def _lock(descriptor: int) -> bool | None:
    """Whether the lock could be had; None where the filesystem has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _WITHOUT_LOCKS:
            return None
        raise
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the open file is still the one with this name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _numbered(target: Path, number: int) -> Path:
    return target.with_name(f".{_cut(target.name)}.{number}.tmp")


def _cut(name: str) -> str:
    """``name``, or where it is too long to be part of another one, its beginning and a hash of it."""
    encoded = name.encode()
    if len(encoded) <= _NAME_BYTES:
        return name
    return f"{encoded[: _NAME_BYTES - 17].decode(errors='ignore')}~{hashlib.sha256(encoded).hexdigest()[:16]}"
