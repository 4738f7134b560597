"""Open files to read, local or remote; small files in one request; a local copy of a remote file."""

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from interleaved_assets.io.storage.filesystem import (
    StorageOptions,
    filesystem,
    is_local,
    local_path,
    storage_errors,
)

_READ_AHEAD_BYTES: Final = 8 * 2**20
_COPY_BYTES: Final = 16 * 2**20


@contextmanager
def open_input(uri: str, storage_options: StorageOptions = None) -> Iterator[BinaryIO]:
    """A seekable binary file to read; a local one has a ``fileno``, so that it can be memory-mapped.

    Raises:
        StorageError: it is missing or unreadable, also later on while the block reads from it.
    """
    with storage_errors(uri, "read"):
        if is_local(uri):
            with local_path(uri).open("rb") as local:
                yield local
        else:
            fs, path = filesystem(uri, storage_options)
            fs.invalidate_cache(path)  # a cached listing may have the size and ETag of a version since replaced
            with fs.open(path, "rb", block_size=_READ_AHEAD_BYTES, cache_type="readahead") as remote:
                yield remote


def read_small(uri: str, storage_options: StorageOptions = None) -> bytes | None:
    """The content of a small file, in one request; None where there is no such file.

    Raises:
        StorageError: it cannot be read.
    """
    with storage_errors(uri, "read"):
        fs, path = filesystem(uri, storage_options)
        # s3fs would otherwise ask for the size first, to fetch what is large in parts: twice the time for a small file
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
    """A local path with the content of ``uri``: the file itself where it is local, else a temporary copy of it.

    Raises:
        StorageError: it is missing or unreadable, or there is no room for the copy.
    """
    if is_local(uri):
        path = local_path(uri)
        with storage_errors(uri, "read"), path.open("rb"):
            pass  # a missing or unreadable file is reported here, not by whoever opens the path
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="interleaved-") as folder:
        path = Path(folder, uri.rpartition("/")[2] or "copy")
        with open_input(uri, storage_options) as source, path.open("wb") as copy:
            shutil.copyfileobj(source, copy, _COPY_BYTES)
        yield path
