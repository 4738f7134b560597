"""Temporary files next to the final file, whose lock shows whether the writer is alive.

A writer holds a lock (``flock``) on its temporary file until the file is renamed or removed. The system releases the
locks of a process that ends in any way, so an unlocked temporary file belongs to a dead writer, and the next writer of
the same file takes it over. Names are numbered and tried in order, so leftover files are found without listing the
folder, which may hold a hundred thousand files.

If the filesystem has no locks, names are random, and :func:`clear_temporaries` lists the folder and removes them all. A
live writer then fails when it renames its file, and no file appears.
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
# most systems allow 255 bytes; the other parts of a temporary name take up to 38
_NAME_BYTES: Final = 210

_locking_devices: dict[int, bool] = {}
"""For each device number, True if its filesystem has locks."""


class TemporaryFile:
    """A new empty file next to ``target``, which is written, then committed or discarded; missing folders are created.

    Attributes:
        file: the file to write; closed by :meth:`commit` and :meth:`discard`.
    """

    def __init__(self, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        self._target = target
        self._path, self._locked = _first_free(target)
        self.file: BinaryIO = os.fdopen(os.dup(self._locked), "wb", buffering=_BUFFER_BYTES)

    def store(self) -> None:
        """Close the file, which keeps its temporary name and its lock."""
        self.file.close()

    def commit(self) -> str:
        """Rename the file to its final name, replacing an existing file; return its stamp."""
        # close it first, since a network filesystem may report a full disk only then; the lock stays
        self.file.close()
        # the system's file time is up to some milliseconds old, and inodes are reused: without an exact time, two
        # successive files of the same name and size could have the same stamp
        now = time.time_ns()
        with contextlib.suppress(OSError):  # not every filesystem allows setting the time
            os.utime(self._locked, ns=(now, now))
        # taken from the open file before the rename, since another writer may replace it right afterwards
        stamp = local_stamp(os.fstat(self._locked))
        self._path.replace(self._target)
        self._unlock()
        return stamp

    def link(self) -> None:
        """Give the stored file its final name beside its temporary one, which :meth:`discard` removes."""
        self._target.hardlink_to(self._path)

    def discard(self) -> None:
        """Remove the file, or its temporary name if it has its final one."""
        try:
            self._path.unlink(missing_ok=True)
        finally:
            self._unlock()
            # closing flushes the buffer, which fails again on a full disk; the handle is closed anyway
            with contextlib.suppress(OSError):
                self.file.close()

    def _unlock(self) -> None:
        descriptor, self._locked = self._locked, -1
        if descriptor >= 0:
            os.close(descriptor)


def random_name(name: str) -> str:
    """Return a unique name for a temporary file of ``name``, with an extension that no search for shards finds."""
    return f".{_cut(name)}.{uuid.uuid4().hex}.tmp"


def is_temporary_of(name: str, found: str) -> bool:
    """Return whether ``found`` is the name of a temporary file of ``name``."""
    return target_name(found) == _cut(name)


def target_name(found: str) -> str | None:
    """Return the name of the file that ``found`` is temporary for, shortened if it is long; None for other files."""
    match = re.fullmatch(r"\.(.+)\.(?:\d+|[0-9a-f]{32})\.tmp", found)
    return match[1] if match else None


def clear_temporaries(target: Path) -> None:
    """Remove temporary files of dead writers of ``target``, which are found by listing the folder."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for found in target.parent.iterdir():
            if is_temporary_of(target.name, found.name):
                remove_if_dead(found)


def has_locks(folder: Path) -> bool:
    """Return whether the filesystem of ``folder`` has locks; True for a missing folder: it has no temporary files."""
    try:
        device = folder.stat().st_dev
    except (FileNotFoundError, NotADirectoryError):
        return True
    if device not in _locking_devices:
        with tempfile.TemporaryFile(dir=folder) as file:
            _locking_devices[device] = _lock(file.fileno()) is not None
    return _locking_devices[device]


def _first_free(target: Path) -> tuple[Path, int]:
    """Return path and locked descriptor of the first numbered file that no live writer holds; the file is empty."""
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
                if os.fstat(descriptor).st_nlink > 1:
                    # its writer died after link(): the file also has the final name, and must keep its content
                    path.unlink()
                    os.close(descriptor)
                    continue
                os.ftruncate(descriptor, 0)
                # a writer that died while a live one held this number has left a higher number
                for higher in itertools.count(number + 1):
                    if not remove_if_dead(_numbered(target, higher)):
                        return path, descriptor
            os.close(descriptor)
            if not has_lock:
                break
            # its writer renamed or removed it between open() and flock(): the name is free now
    raise AssertionError("itertools.count() ended")


def remove_if_dead(path: Path) -> bool:
    """Remove the temporary file at ``path`` unless its writer is alive; return whether it was removed.

    If the filesystem has no locks, the writer counts as dead.
    """
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
    """Open the file and return its descriptor; None if it does not exist or belongs to another user."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o666)
    except FileNotFoundError:
        if flags & os.O_CREAT:
            raise
        return None
    except PermissionError:
        if not os.path.lexists(path):  # the folder is not writable
            raise
        return None


def _lock(descriptor: int) -> bool | None:
    """Return whether the lock was acquired; None if the filesystem has no locks."""
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
    """Return whether ``path`` is still the open file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _numbered(target: Path, number: int) -> Path:
    return target.with_name(f".{_cut(target.name)}.{number}.tmp")


def _cut(name: str) -> str:
    """Return ``name``, shortened to its beginning and a hash if it is too long for a temporary name."""
    encoded = name.encode()
    if len(encoded) <= _NAME_BYTES:
        return name
    return f"{encoded[: _NAME_BYTES - 17].decode(errors='ignore')}~{hashlib.sha256(encoded).hexdigest()[:16]}"
