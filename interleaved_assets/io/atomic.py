"""Output that appears whole or not at all."""

import contextlib
import hashlib
import logging
import mmap
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from fsspec.spec import AbstractFileSystem

from interleaved_assets.io.filesystem import StorageOptions, filesystem, is_local, local_path, storage_errors
from interleaved_assets.model.errors import StorageError

logger = logging.getLogger(__name__)

BytesLike = bytes | bytearray | memoryview | mmap.mmap

# Object stores show an object only once its upload is completed, so no temporary name is needed there.
_VISIBLE_ONCE_CLOSED: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl"})
_LOCAL_BUFFER_BYTES: Final = 256 * 2**10
_UPLOAD_PART_BYTES: Final = 16 * 2**20


class AtomicOutput:
    """A file being written: append only, with its size and hash. What :func:`atomic_output` gives.

    Attributes:
        uri: where the file will stand.
        size: bytes written so far.
        sha256: hex digest of all bytes once the output is committed, None before, or where hashing is off.
    """

    # pyarrow asks a sink for it
    closed = False

    def __init__(self, uri: str, file: BinaryIO, *, hashed: bool) -> None:
        self.uri, self.size = uri, 0
        self.sha256: str | None = None
        self._file, self._digest = file, hashlib.sha256() if hashed else None

    def write(self, data: BytesLike) -> int:
        """Append ``data``; gives its length in bytes.

        Raises:
            StorageError: it cannot be written.
        """
        with storage_errors(self.uri, "write"):
            self._file.write(data)
        if self._digest is not None:
            self._digest.update(data)
        written = data.nbytes if isinstance(data, memoryview) else len(data)
        self.size += written
        return written

    def tell(self) -> int:
        """Bytes written so far."""
        return self.size

    def writable(self) -> bool:
        """Always. This and what follows is the file protocol, for pyarrow and tarfile."""
        return True

    def readable(self) -> bool:
        """Never."""
        return False

    def seekable(self) -> bool:
        """Never."""
        return False

    def flush(self) -> None:
        """Nothing to do: the bytes count once the output is committed."""

    def close(self) -> None:
        """Nothing to do: :func:`atomic_output` closes the file."""

    def finish(self) -> None:
        """Set :attr:`sha256`; called when the output is committed."""
        if self._digest is not None:
            self.sha256 = self._digest.hexdigest()


@contextmanager
def atomic_output(uri: str, storage_options: StorageOptions = None, *, hashed: bool = True) -> Iterator[AtomicOutput]:
    """Write ``uri`` so that it appears with its full content at the end of the block, or not at all.

    A file that stands there is replaced in that moment; on any exception it stays as it was, and nothing else is left
    behind. Missing folders are made. ``hashed=False`` leaves out the SHA-256 (about 1.8 GB/s of one core).

    Raises:
        StorageError: the place cannot be written to.
    """
    with storage_errors(uri, "write"):
        target = _target(uri, storage_options)
        file = target.open()
    output = AtomicOutput(uri, file, hashed=hashed)
    try:
        yield output
        with storage_errors(uri, "write"):
            target.commit(file)
        output.finish()
    except BaseException:
        try:
            with storage_errors(uri, "clean up after"):
                target.discard(file)
        except StorageError as error:
            # the exception under way says what went wrong; this one only what may be left over
            logger.warning("%s", error)
        raise


class _Target(Protocol):
    def open(self) -> BinaryIO: ...
    def commit(self, file: BinaryIO) -> None: ...
    def discard(self, file: BinaryIO) -> None: ...


def _target(uri: str, storage_options: StorageOptions) -> _Target:
    if is_local(uri):
        return _LocalTarget(local_path(uri))
    fs, path = filesystem(uri, storage_options)
    protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
    return _UploadTarget(fs, path) if protocols & _VISIBLE_ONCE_CLOSED else _MovedTarget(fs, path)


def _hidden_beside(path: str) -> str:
    # the ending keeps it out of every search for shards; the name is cut because 255 bytes is most systems' limit
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name.encode()[:180].decode(errors='ignore')}.{uuid.uuid4().hex}.tmp"


class _LocalTarget:
    """A temporary file beside the final one, then a rename."""

    def __init__(self, path: Path) -> None:
        self._path, self._temporary = path, Path(_hidden_beside(str(path)))

    def open(self) -> BinaryIO:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return self._temporary.open("xb", buffering=_LOCAL_BUFFER_BYTES)

    def commit(self, file: BinaryIO) -> None:
        file.close()
        self._temporary.replace(self._path)

    def discard(self, file: BinaryIO) -> None:
        # closing flushes what is buffered, which fails again on a full disk; the handle is closed nevertheless
        with contextlib.suppress(OSError):
            file.close()
        self._temporary.unlink(missing_ok=True)


class _UploadTarget:
    """An upload that is completed or aborted."""

    def __init__(self, fs: AbstractFileSystem, path: str) -> None:
        self._fs, self._path = fs, path

    def open(self) -> BinaryIO:
        return self._fs.open(self._path, "wb", block_size=_UPLOAD_PART_BYTES)

    def commit(self, file: BinaryIO) -> None:
        file.close()

    def discard(self, file: BinaryIO) -> None:
        # marked closed first: closing it, which its finalizer would do, completes the upload
        file.closed = True  # type: ignore[misc]  # fsspec's files make this attribute settable
        file.discard()  # type: ignore[attr-defined]  # fsspec's files have it


class _MovedTarget:
    """Any other filesystem: a temporary file beside the final one, then a move."""

    def __init__(self, fs: AbstractFileSystem, path: str) -> None:
        self._fs, self._path, self._temporary = fs, path, _hidden_beside(path)

    def open(self) -> BinaryIO:
        self._fs.makedirs(self._fs._parent(self._path), exist_ok=True)
        return self._fs.open(self._temporary, "wb")

    def commit(self, file: BinaryIO) -> None:
        file.close()
        if type(self._fs).mv is AbstractFileSystem.mv:
            # fsspec's own mv copies and removes as well, but takes brackets in a name for a glob
            self._fs.cp_file(self._temporary, self._path)
            self._fs.rm_file(self._temporary)
        else:
            self._fs.mv(self._temporary, self._path)

    def discard(self, file: BinaryIO) -> None:
        file.close()
        if self._fs.exists(self._temporary):
            self._fs.rm_file(self._temporary)
