"""Temporary files that become local files, and the names of those that have one.

Linux keeps a file without a name (``O_TMPFILE``) for as long as its writer has it open, and removes it however the
writer ends. Where a filesystem has no such files (macOS, NFS, FUSE), a killed writer leaves a hidden file with a random
name.
"""

import contextlib
import errno
import os
import re
import time
import uuid
from pathlib import Path
from typing import BinaryIO, Final

from interleaved_assets.io.storage.stamps import local_stamp

NO_LINKS: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of file systems that cannot link one file to the other."""

_DESCRIPTORS: Final = Path("/proc/self/fd")
_BUFFER_BYTES: Final = 256 * 2**10
# a kernel or filesystem without unnamed files takes the flag for an attempt to write to the folder
_NO_UNNAMED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.EISDIR, errno.EINVAL})


class TemporaryFile:
    """A new empty file for ``target``, which is written, then committed or discarded; missing folders are created.

    Attributes:
        file: the file to write; closed by :meth:`commit` and :meth:`discard`.
    """

    def __init__(self, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        self._target, self._path = target, target.with_name(random_name(target.name))
        unnamed = _open_unnamed(target.parent)
        self._has_name = unnamed is None
        if unnamed is None:
            unnamed = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._descriptor = unnamed
        self.file: BinaryIO = os.fdopen(os.dup(unnamed), "wb", buffering=_BUFFER_BYTES)

    def store(self) -> None:
        """Close the file, which stays invisible under its final name."""
        self.file.close()

    def commit(self) -> str:
        """Give the file its final name, replacing an existing file; return its stamp."""
        # close it first, since a network filesystem may report a full disk only then
        self.file.close()
        # the system's file time is up to some milliseconds old, and inodes are reused: without an exact time, two
        # successive files of the same name and size could have the same stamp
        now = time.time_ns()
        with contextlib.suppress(OSError):  # not every filesystem allows setting the time
            os.utime(self._descriptor, ns=(now, now))
        # taken from the open file before the rename, since another writer may replace it right afterwards
        stamp = local_stamp(os.fstat(self._descriptor))
        if not self._has_name:
            self._link(self._path)  # a rename needs a name, and a link cannot replace a file
            self._has_name = True
        self._close()  # before the rename for the same reason
        self._path.replace(self._target)
        return stamp

    def create(self) -> bool:
        """Give the file its final name; return False, and discard it, if a file has that name."""
        self.file.close()
        is_new = True
        try:
            self._link(self._target)
        except FileExistsError:
            is_new = False
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            self.commit()
            return True
        self.discard()
        return is_new

    def discard(self) -> None:
        """Remove the file, or its temporary name if it has its final one."""
        try:
            if self._has_name:
                self._path.unlink(missing_ok=True)
        finally:
            self._close()
            # closing flushes the buffer, which fails again on a full disk; the handle is closed anyway
            with contextlib.suppress(OSError):
                self.file.close()

    def _link(self, path: Path) -> None:
        if self._has_name:
            path.hardlink_to(self._path)
        else:
            # a folder's descriptor, which an absolute path does not need, makes Python follow the link
            source, anything = f"{_DESCRIPTORS}/{self._descriptor}", self._descriptor
            os.link(source, path, src_dir_fd=anything, follow_symlinks=True)

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def random_name(name: str) -> str:
    """Return a unique name for a temporary file of ``name``, with an extension that no search for shards finds."""
    # the rest of a long name is left out: most systems allow 255 bytes, and a character has up to four
    return f".{name[:50]}.{uuid.uuid4().hex}.tmp"


def is_temporary(found: str, name: str) -> bool:
    """Return whether ``found`` is a :func:`random_name` of ``name``."""
    return re.fullmatch(rf"\.{re.escape(name[:50])}\.[0-9a-f]{{32}}\.tmp", found) is not None


def _open_unnamed(folder: Path) -> int | None:
    """Return the descriptor of a new file without a name in ``folder``; None if there are no such files."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None or not _DESCRIPTORS.is_dir():
        return None
    try:
        return os.open(folder, flag | os.O_RDWR | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in _NO_UNNAMED:
            return None
        raise
