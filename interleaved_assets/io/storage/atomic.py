"""Atomic output: a file appears with its full content, or not at all."""

import errno
import io
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, TypeAlias

import xxhash
from fsspec.spec import AbstractFileSystem

from interleaved_assets.io.storage.filesystem import (
    StorageOptions,
    filesystem,
    is_chain,
    is_local,
    local_path,
    storage_errors,
)
from interleaved_assets.io.storage.stamps import etag_stamp, stamp_of
from interleaved_assets.io.storage.temporary import TemporaryFile, random_name
from interleaved_assets.model.errors import OptionError, StorageError

logger = logging.getLogger(__name__)

BytesLike = bytes | bytearray | memoryview

# Object stores show an object only after its upload is completed, so no temporary name is needed.
_VISIBLE_ONCE_CLOSED: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl"})
_READ_ONLY: Final = frozenset({"http", "https"})
_UPLOAD_PART_BYTES: Final = 16 * 2**20


class AtomicOutput(io.RawIOBase):
    """An append-only file with its size and hash, opened by :func:`atomic_output`.

    Attributes:
        uri: the final path of the file.
        size: bytes written so far.
        checksum: 128-bit XXH3 of all bytes as 32 hex digits once the output is committed, None before.
        stamp: stamp of the committed file, the one that :func:`~interleaved_assets.io.storage.read_stamp` returns until
            the file is replaced. None before the commit, and if the storage does not report it at the commit.
    """

    def __init__(self, uri: str, target: "_Target") -> None:
        self.uri, self.size = uri, 0
        self.checksum: str | None = None
        self.stamp: str | None = None
        self._target = target
        self._digest = xxhash.xxh3_128()

    def writable(self) -> bool:
        return True

    def write(self, data: BytesLike) -> int:  # type: ignore[override]  # typeshed has a private type for it
        """Append ``data``; return its length in bytes."""
        with storage_errors(self.uri, "write"):
            self._target.file.write(data)
        self._digest.update(data)
        written = data.nbytes if isinstance(data, memoryview) else len(data)
        self.size += written
        return written

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self.size

    def store(self) -> None:
        """Store the written bytes, still invisible, so that the commit is quick and no memory is held until then.

        Nothing can be written afterwards. In object stores other than S3 this does nothing.
        """
        with storage_errors(self.uri, "write"):
            self._target.store()


def check_place(uri: str) -> None:
    """Refuse a chained URL and a URL of a web server as a place to write to.

    A chained URL would hide which file is replaced.

    Raises:
        OptionError: ``uri`` is one of them.
    """
    if is_chain(uri):
        raise OptionError(f"cannot write {uri}: outputs cannot be chained URLs (a::b); name the place itself.")
    if not is_local(uri) and (scheme := uri.partition("://")[0].lower()) in _READ_ONLY:
        raise OptionError(f"cannot write {uri}: nothing can be written over {scheme}; name a local place or a bucket.")


def check_output(uri: str) -> None:
    """Refuse a place that cannot be written, and one where a write would replace something other than a regular file.

    Every writer calls this; commands that work for long call it before their work too.

    Raises:
        OptionError: as :func:`check_place`.
        StorageError: a folder, a symbolic link, a FIFO, a socket or a device has that name.
    """
    check_place(uri)
    if not is_local(uri):
        return
    with storage_errors(uri, "write"):
        try:
            mode = local_path(uri).lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise StorageError(
            f"cannot write {uri}: it is a symbolic link, a FIFO, a socket or a device, and only regular files are "
            "replaced. Remove it, or name another file."
        )


@contextmanager
def atomic_output(uri: str, storage_options: StorageOptions = None) -> Iterator[AtomicOutput]:
    """Write ``uri`` so that it appears with its full content at the end of the block, or not at all.

    An existing file is replaced at that moment, if :func:`check_output` allows it. On an exception it is not changed,
    and temporary data are removed. Missing folders are created.

    A process that is killed in the block leaves nothing on a local disk of Linux; between the last two steps of the
    commit it leaves a hidden file. On other filesystems it leaves a hidden file whose name ends in ``.tmp``. In an
    object store it leaves the parts of an incomplete upload: listings do not show them, and they take space until a
    lifecycle rule of the bucket aborts such uploads (S3: ``AbortIncompleteMultipartUpload``, after a day or more).
    """
    check_output(uri)
    with storage_errors(uri, "write"):
        target = _open_target(uri, storage_options)
    output = AtomicOutput(uri, target)
    try:
        yield output
        with storage_errors(uri, "write"):
            output.stamp = target.commit()
        output.checksum = output._digest.hexdigest()
    except BaseException:
        try:
            with storage_errors(uri, "clean up after"):
                target.discard()
        except StorageError as error:
            # the first exception is the cause; this one only reports a file that may be left over
            logger.warning("%s", error)
        raise


def _open_target(uri: str, storage_options: StorageOptions) -> "_Target":
    if is_local(uri):
        return TemporaryFile(local_path(uri))
    fs, path = filesystem(uri, storage_options)
    return _UploadTarget(fs, path) if _is_object_store(fs) else _MovedTarget(fs, path)


def _is_object_store(fs: AbstractFileSystem) -> bool:
    protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
    return bool(protocols & _VISIBLE_ONCE_CLOSED)


class _UploadTarget:
    """An upload to an object store, which is completed or aborted."""

    def __init__(self, fs: AbstractFileSystem, path: str) -> None:
        self.file: BinaryIO = fs.open(path, "wb", block_size=_UPLOAD_PART_BYTES)
        self._etag = ""
        self._ask = getattr(self.file, "_call_s3", None)
        if self._ask is not None:
            # s3fs drops the response that completes the upload; only that response has the ETag of this upload
            self.file._call_s3 = self._asked

    def _asked(self, method: str, *arguments: Any, **named: Any) -> Any:
        assert self._ask is not None
        answer = self._ask(method, *arguments, **named)
        if method in ("put_object", "complete_multipart_upload"):
            self._etag = answer.get("ETag") or ""
        return answer

    def store(self) -> None:
        if self._ask is not None:
            # a file of s3fs that does not commit by itself uploads everything when it is closed, as a multipart upload
            self.file.autocommit = False  # type: ignore[attr-defined]  # fsspec's files have it
            self.file.close()

    def commit(self) -> str | None:
        if self.file.closed:
            self.file.commit()  # type: ignore[attr-defined]
        else:
            self.file.close()
        return etag_stamp(self._etag, self.file.tell()) if self._etag else None

    def discard(self) -> None:
        # mark it as closed first: the finalizer closes an open file, which would complete the upload
        self.file.closed = True  # type: ignore[misc]  # fsspec's files make this attribute settable
        self.file.discard()  # type: ignore[attr-defined]  # fsspec's files have it


class _MovedTarget:
    """A temporary file in the same folder, then a move: the target on other filesystems."""

    def __init__(self, fs: AbstractFileSystem, path: str) -> None:
        folder, _, name = path.rpartition("/")
        self._fs, self._path, self._temporary = fs, path, f"{folder}/{random_name(name)}"
        fs.makedirs(folder, exist_ok=True)
        self.file: BinaryIO = fs.open(self._temporary, "wb")

    def store(self) -> None:
        self.file.close()

    def commit(self) -> str | None:
        self.file.close()
        if type(self._fs).mv is AbstractFileSystem.mv:
            # fsspec's mv copies and removes too, but treats brackets in a name as a glob
            self._fs.cp_file(self._temporary, self._path)
            self._fs.rm_file(self._temporary)
            return None  # the copy has another modification time
        stamp = stamp_of(self._fs.info(self._temporary))
        self._fs.mv(self._temporary, self._path)
        return stamp

    def discard(self) -> None:
        self.file.close()
        if self._fs.exists(self._temporary):
            self._fs.rm_file(self._temporary)


_Target: TypeAlias = TemporaryFile | _UploadTarget | _MovedTarget
"""An open output file; ``commit`` makes it appear at its final path, ``discard`` removes it.

``store`` does the slow and invisible part of a commit beforehand. ``commit`` returns the stamp of its own file, taken
during the commit, since afterwards the path may hold that of another writer; None if the stamp cannot be known.
"""
