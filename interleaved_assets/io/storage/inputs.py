"""Reading of local and remote files: open, read in one request, or copy."""

import contextlib
import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, cast

import xxhash
from fsspec.asyn import sync
from fsspec.spec import AbstractFileSystem

from interleaved_assets.io.storage.filesystem import (
    StorageOptions,
    client_errors,
    filesystem,
    is_local,
    local_path,
    s3_code,
    storage_errors,
)
from interleaved_assets.io.storage.local import LocalFile, check_regular
from interleaved_assets.model.errors import StorageError

_LOCAL_BUFFER_BYTES: Final = 256 * 2**10
_READ_AHEAD_BYTES: Final = 8 * 2**20
_PARALLEL_RANGES: Final = 4
"""Ranges of a large read that are fetched at a time: one connection to a store gives a fraction of its bandwidth."""
_FIRST_READ_BYTES: Final = 2**20
_UNBROKEN_TRIES: Final = 3
# Of aiohttp, botocore and this module; by name, to import them for no other storage.
_BROKEN_ANSWERS: Final = frozenset({"ClientPayloadError", "FlexibleChecksumError", "ConnectionError"})
COPY_BYTES: Final = _PARALLEL_RANGES * _READ_AHEAD_BYTES
"""Bytes to read at a time for a copy of a remote file."""


@contextmanager
def open_input(uri: str, storage_options: StorageOptions = None) -> Iterator[BinaryIO]:
    """Open a seekable binary file for reading."""
    with storage_errors(uri, "read"):
        if is_local(uri):
            with io.BufferedReader(LocalFile(local_path(uri), uri), _LOCAL_BUFFER_BYTES) as local:
                yield local
        else:
            with client_errors(uri, "read"):
                fs, path = filesystem(uri, storage_options)
                file = _open_remote(fs, path)
            with _RemoteFile(file, uri) as remote:
                yield cast(BinaryIO, remote)


def _open_remote(fs: AbstractFileSystem, path: str) -> Any:
    fs.invalidate_cache()  # a cached listing may have the size and ETag of an older version
    if "s3" not in fs.protocol:
        return fs.open(path, "rb", block_size=_READ_AHEAD_BYTES, cache_type="readahead")
    bucket, key, version = fs.split_path(path)
    first = None if version or fs.version_aware else _unbroken(sync, fs.loop, _first_block, fs, bucket, key)
    if first is None:
        return _ReadAhead(fs.open(path, "rb", cache_type="none"))
    data, etag, size = first
    # an s3fs file of a known size makes no request of its own; it checks no ETag either, unless it is told one
    file = fs.open(path, "rb", cache_type="none", size=size)
    file.details = {"name": path, "type": "file", "size": size, "ETag": etag}
    file.read_kw = {**file.read_kw, "IfMatch": etag}
    return _ReadAhead(file, data)


async def _first_block(fs: AbstractFileSystem, bucket: str, key: str) -> tuple[bytes, str, int] | None:
    """Return the first bytes of an object with its ETag and its size, from one request; None if it is empty.

    A small object takes no other request.
    """

    async def ask() -> tuple[bytes, str, int]:
        wanted = f"bytes=0-{_FIRST_READ_BYTES - 1}"
        answer = await fs._call_s3("get_object", Bucket=bucket, Key=key, Range=wanted)
        try:
            data = await answer["Body"].read()
        finally:
            answer["Body"].close()
        _, _, size = answer.get("ContentRange", "").rpartition("/")
        return data, answer["ETag"], int(size) if size.isdigit() else len(data)

    from s3fs.core import _error_wrapper  # what s3fs reads by, with its retries

    try:
        found: tuple[bytes, str, int] = await _error_wrapper(ask, retries=fs.retries)
    except OSError as error:
        if s3_code(error) == "InvalidRange":
            return None
        raise
    return found


def _unbroken(read: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return what ``read`` does; an answer that is cut or damaged on its way is requested again: its server works.

    s3fs requests it twice, and botocore, which reads no bodies, once.
    """
    for _ in range(_UNBROKEN_TRIES - 1):
        try:
            return read(*args, **kwargs)
        except Exception as error:
            if type(error).__name__ not in _BROKEN_ANSWERS:
                raise
    return read(*args, **kwargs)


class _ReadAhead:
    """An object in S3 that is read in blocks; a large read takes parallel requests of 8 MiB and more.

    fsspec's own cache fetches a block more with every large read, and copies its result.
    """

    def __init__(self, file: Any, first: bytes = b"") -> None:
        self._file, self._at = file, 0
        self._start, self._block = 0, first

    def read(self, size: int = -1) -> bytes:
        end = self._file.size if size < 0 else min(self._at + size, self._file.size)
        first = self._at - self._start
        known = self._block[first : end - self._start] if 0 <= first < len(self._block) else b""
        self._at += len(known)
        if (left := end - self._at) <= 0:
            return known
        if left >= _READ_AHEAD_BYTES:
            rest = self._fetch_large(left)
        else:
            # read ahead little until reads turn out to be consecutive
            goes_on = self._at == self._start + len(self._block)
            ahead = _READ_AHEAD_BYTES if goes_on else max(left, _FIRST_READ_BYTES)
            self._start, self._block = self._at, self._fetch(ahead)
            rest = self._block[:left]
        self._at += len(rest)
        return known + rest if known else rest

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._file.size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self._file.close()

    def _fetch(self, size: int) -> bytes:
        return bytes(_unbroken(self._range, self._at, min(self._at + size, self._file.size)))

    def _range(self, start: int, end: int) -> bytes:
        # the method that an fsspec file is read by; it may be called by many threads, and checks the ETag
        data: bytes = self._file._fetch_range(start, end)
        if len(data) != end - start:  # aiohttp sees this only where the answer has named its full length
            raise ConnectionError(f"the answer ended after {len(data)} of {end - start} bytes")
        return data

    def _fetch_large(self, size: int) -> bytes:
        count = min(_PARALLEL_RANGES, size // _READ_AHEAD_BYTES)
        borders = [self._at + size * number // count for number in range(count + 1)]
        with ThreadPoolExecutor(count, thread_name_prefix="range") as pool:
            return b"".join(pool.map(partial(_unbroken, self._range), borders, borders[1:]))


class _RemoteFile(io.BufferedIOBase):
    """A remote file whose methods raise :class:`StorageError`."""

    def __init__(self, file: BinaryIO, uri: str) -> None:
        self._file, self._uri = file, uri

    def read(self, size: int | None = -1) -> bytes:
        with client_errors(self._uri, "read"):
            data = self._file.read(-1 if size is None else size)
            # fsspec gives less where an answer ends too early, which readers take for the end of the file
            while size is not None and 0 < len(data) < size and (more := self._file.read(size - len(data))):
                data += more
            return data

    def read1(self, size: int = -1) -> bytes:
        return self.read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with client_errors(self._uri, "read"):
            self._file.seek(offset, whence)
            return self._file.tell()  # the seek of SFTP returns nothing

    def tell(self) -> int:
        with client_errors(self._uri, "read"):
            return self._file.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def read_small(uri: str, storage_options: StorageOptions = None) -> bytes | None:
    """Return the content of a small file, read in one request; None if no such file exists."""
    with client_errors(uri, "read"):
        fs, path = filesystem(uri, storage_options)
        if is_local(uri):
            with contextlib.suppress(FileNotFoundError):
                check_regular(local_path(uri), uri)
        # otherwise s3fs first requests the size, to fetch large files in parts: twice the time for a small file
        in_one_go = {"max_concurrency": 1} if "s3" in fs.protocol else {}
        try:
            return bytes(_unbroken(fs.cat_file, path, **in_one_go))
        except FileNotFoundError:
            return None


def file_sha256(uri: str, storage_options: StorageOptions = None) -> str:
    """Return the SHA-256 of a file's content, as 64 hex digits."""
    with open_input(uri, storage_options) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # BinaryIO leaves out readinto


def file_xxh3(uri: str, storage_options: StorageOptions = None) -> str:
    """Return the 128-bit XXH3 of a file's content, as 32 hex digits; it recognizes changes, not forgeries."""
    with open_input(uri, storage_options) as file:
        return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()  # type: ignore[arg-type]  # as above


def file_hashes(uri: str, storage_options: StorageOptions = None) -> tuple[str, str]:
    """Return what :func:`file_xxh3` and :func:`file_sha256` do, from one pass over the file."""
    fast, strong = xxhash.xxh3_128(), hashlib.sha256()
    with open_input(uri, storage_options) as file:
        while part := file.read(COPY_BYTES):
            fast.update(part)
            strong.update(part)
    return fast.hexdigest(), strong.hexdigest()


@contextmanager
def local_copy(uri: str, storage_options: StorageOptions = None) -> Iterator[Path]:
    """Give a local path with the content of ``uri``: the file itself if it is local, else a temporary copy.

    On Linux the path is a link to a :func:`scratch_file`. Whoever has the path may open it while this process lives.
    """
    if is_local(uri):
        path = local_path(uri)
        with storage_errors(uri, "read"), LocalFile(path, uri):
            pass  # raises for a missing or unreadable file before the caller opens the path
        yield path
        return
    with scratch_errors(uri):
        scratch = tempfile.TemporaryDirectory(prefix="interleaved-")
    with scratch as folder:
        path = Path(folder, uri.rpartition("/")[2] or "copy")
        descriptors = Path(f"/proc/{os.getpid()}/fd")
        is_linked = descriptors.is_dir()
        with scratch_file(uri) if is_linked else path.open("wb") as copy:
            with open_input(uri, storage_options) as source, scratch_errors(uri):
                shutil.copyfileobj(source, copy, COPY_BYTES)
                copy.flush()
                if is_linked:
                    path.symlink_to(descriptors / str(copy.fileno()))
            yield path


@contextmanager
def scratch_file(uri: str) -> Iterator[IO[bytes]]:
    """Open a temporary file for a copy of ``uri``; write to it in :func:`scratch_errors`.

    It has no name, so that a process that is killed leaves nothing in the scratch folder.
    """
    with scratch_errors(uri):
        file = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
    try:
        yield file
    finally:
        # closing flushes buffered data, which fails again on a full disk
        with contextlib.suppress(OSError):
            file.close()


@contextmanager
def scratch_errors(uri: str) -> Iterator[None]:
    """Turn an OSError in the block, which copies ``uri`` to a temporary file, into :class:`StorageError`."""
    try:
        yield
    except StorageError:
        raise  # the storage that is copied from failed
    except OSError as error:
        raise StorageError(
            f"cannot copy {uri} to the scratch folder {_scratch_folder()}: {error.strerror or error}. Free some space "
            "there, or set the environment variable TMPDIR to a folder with more."
        ) from error


def _scratch_folder() -> str:
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        return os.environ.get("TMPDIR", "/tmp")
