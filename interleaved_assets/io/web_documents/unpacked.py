"""The bytes of a JSONL file that is plain, or packed with gzip, zstd or ZIP, as its first bytes say."""

import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final, cast

import pyarrow as pa

from interleaved_assets.io.storage import StorageOptions, is_storage_failure, open_input
from interleaved_assets.model.errors import ShardError

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = (b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18")  # the second begins a frame to skip, as pzstd writes it
_ZIP: Final = b"PK\x03\x04"
_BUFFER_BYTES: Final = 2**18
_NO_FILES: Final = "__MACOSX/"
"""The folder in which macOS puts what else it knows of the files of a ZIP file."""


class DamagedError(Exception):
    """A packed file is cut or damaged; the message says how."""


@contextmanager
def open_unpacked(uri: str, storage_options: StorageOptions) -> Iterator[tuple[IO[bytes], bool]]:
    """Open a file for reading; return its unpacked bytes, and whether it is packed.

    Raises:
        StorageError: the file is missing or unreadable.
        ShardError: a ZIP file that has not one file, or one that cannot be unpacked here.
        DamagedError: a packed file is cut or damaged; also raised in the block, by a read.
    """
    with open_input(uri, storage_options) as raw:
        front = raw.read(len(_ZIP))
        raw.seek(0)
        if not front.startswith(_GZIP) and front not in (*_ZSTD, _ZIP):
            # a remote file has no buffer, and would be asked for each byte of a line
            with io.BufferedReader(cast(io.RawIOBase, raw), _BUFFER_BYTES) as plain:
                yield plain, False
            return
        try:
            if front in _ZSTD:
                stream = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")
                with io.BufferedReader(stream, _BUFFER_BYTES) as unpacked:
                    yield unpacked, True
            elif front == _ZIP:
                with _archive(raw) as archive, _only_file(archive, uri) as unpacked:
                    yield unpacked, True
            else:
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield cast(IO[bytes], unpacked), True
        except (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
            if is_storage_failure(error):
                raise
            raise DamagedError(str(error)) from error


def _archive(raw: IO[bytes]) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(raw)
    except zipfile.BadZipFile as error:
        if isinstance(error.__context__, OSError):  # zipfile says the same of a file that cannot be read
            raise error.__context__ from None
        raise
    except (IndexError, ValueError, NotImplementedError) as error:  # fields of its directory that make no sense
        raise zipfile.BadZipFile(str(error)) from error


def _only_file(archive: zipfile.ZipFile, uri: str) -> io.BufferedReader:
    files = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith(_NO_FILES)]
    if len(files) != 1:
        raise ShardError(f"{uri} has {len(files)} files, and a shard is one: unpack it into the raw root")
    try:
        return io.BufferedReader(cast(io.RawIOBase, archive.open(files[0])), _BUFFER_BYTES)
    except (RuntimeError, NotImplementedError, UnicodeDecodeError) as error:  # a password, or an unknown method
        raise ShardError(f"{uri}: {error}. Unpack it into the raw root.") from error
