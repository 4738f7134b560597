"""Open local and remote files for reading, read small files in one request, copy remote files."""

import contextlib
import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, cast

from interleaved_assets.io.storage.filesystem import (
    StorageOptions,
    client_errors,
    filesystem,
    is_local,
    local_path,
    storage_errors,
)
from interleaved_assets.io.storage.local import LocalFile, check_regular

_LOCAL_BUFFER_BYTES: Final = 256 * 2**10
_READ_AHEAD_BYTES: Final = 8 * 2**20
_COPY_BYTES: Final = 16 * 2**20


@contextmanager
def open_input(uri: str, storage_options: StorageOptions = None) -> Iterator[BinaryIO]:
    """Open a seekable binary file for reading.

    Raises:
        StorageError: it is missing, unreadable, or not a regular file. Reads in the block raise it too, for example if
            a local file has changed since it was opened.
    """
    with storage_errors(uri, "read"):
        if is_local(uri):
            with io.BufferedReader(LocalFile(local_path(uri), uri), _LOCAL_BUFFER_BYTES) as local:
                yield local
        else:
            with client_errors(uri, "read"):
                fs, path = filesystem(uri, storage_options)
                fs.invalidate_cache(path)  # a cached listing may have the size and ETag of an older version
                file = fs.open(path, "rb", block_size=_READ_AHEAD_BYTES, cache_type="readahead")
            with _RemoteFile(file, uri) as remote:
                yield cast(BinaryIO, remote)


class _RemoteFile(io.BufferedIOBase):
    """A remote file whose methods raise :class:`StorageError`."""

    def __init__(self, file: BinaryIO, uri: str) -> None:
        self._file, self._uri = file, uri

    def read(self, size: int | None = -1) -> bytes:
        with client_errors(self._uri, "read"):
            return self._file.read(-1 if size is None else size)

    def read1(self, size: int = -1) -> bytes:
        return self.read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with client_errors(self._uri, "read"):
            return self._file.seek(offset, whence)

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
    """The content of a small file, read in one request; None if there is no such file.

    Raises:
        StorageError: it cannot be read.
    """
    with client_errors(uri, "read"):
        fs, path = filesystem(uri, storage_options)
        if is_local(uri):
            with contextlib.suppress(FileNotFoundError):
                check_regular(local_path(uri), uri)
        # otherwise s3fs first requests the size, to fetch large files in parts: twice the time for a small file
        in_one_go = {"max_concurrency": 1} if "s3" in fs.protocol else {}
        try:
            return bytes(fs.cat_file(path, **in_one_go))
        except FileNotFoundError:
            return None


def file_sha256(uri: str, storage_options: StorageOptions = None) -> str:
    """SHA-256 of a file's content, as 64 hex digits.

    Raises:
        StorageError: it is missing or unreadable.
    """
    with open_input(uri, storage_options) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # BinaryIO leaves out readinto


@contextmanager
def local_copy(uri: str, storage_options: StorageOptions = None) -> Iterator[Path]:
    """A local path with the content of ``uri``: the file itself if it is local, else a temporary copy.

    Raises:
        StorageError: it is missing or unreadable, or there is no space for the copy.
    """
    if is_local(uri):
        path = local_path(uri)
        with storage_errors(uri, "read"), LocalFile(path, uri):
            pass  # raises for a missing or unreadable file before the caller opens the path
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="interleaved-") as folder:
        path = Path(folder, uri.rpartition("/")[2] or "copy")
        with open_input(uri, storage_options) as source, path.open("wb") as copy:
            shutil.copyfileobj(source, copy, _COPY_BYTES)
        yield path
