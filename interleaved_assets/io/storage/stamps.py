"""Stamps: short texts that change whenever a file is written, so that a file is known again without being read.

An object store has an ETag, which follows from the content or from the upload. A local file has the time it was
written, in nanoseconds, its size and its inode. Of other filesystems size and time are all there is.
"""

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from interleaved_assets.io.storage.filesystem import (
    StorageOptions,
    filesystem,
    is_local,
    local_path,
    storage_errors,
)
from interleaved_assets.io.storage.inputs import open_input
from interleaved_assets.model.errors import StorageError


def stamp_of(info: Mapping[str, Any]) -> str | None:
    """The stamp of a file on a filesystem that is not local, given what fsspec's ``info`` or ``find`` has of it.

    None where it is no file. Where neither an ETag nor a time is known, the stamp is the size alone.
    """
    if info.get("type", "file") != "file":
        return None
    if etag := info.get("ETag") or info.get("etag"):
        return etag_stamp(etag, info["size"])
    written = info.get("mtime") or info.get("LastModified") or info.get("created")
    return f"modified:{written}-{info['size']}"


def etag_stamp(etag: str, size: int) -> str:
    """The stamp of an object of ``size`` bytes with this ETag, quoted or not."""
    return f"etag:{etag.strip(chr(34))}-{size}"


def local_stamp(status: os.stat_result) -> str:
    """The stamp of a local file. Renaming the file keeps it; a copy has another one."""
    return f"modified:{status.st_mtime_ns}-{status.st_size}-{status.st_ino}"


def read_stamp(uri: str, storage_options: StorageOptions = None) -> str | None:
    """The stamp that the file at ``uri`` has now, in one request; None where there is no such file.

    Raises:
        StorageError: it cannot be looked at.
    """
    with storage_errors(uri, "look at"):
        try:
            if is_local(uri):
                return local_stamp(local_path(uri).stat())
            fs, path = filesystem(uri, storage_options)
            fs.invalidate_cache(path)
            return stamp_of(fs.info(path))
        except (FileNotFoundError, NotADirectoryError):
            return None


def list_stamps(folder: str, storage_options: StorageOptions = None) -> dict[str, str]:
    """The stamps of all files below a folder that is not local, by path below it: one request for 1,000 of them in S3.

    Raises:
        StorageError: it cannot be listed.
    """
    with storage_errors(folder, "list"):
        fs, path = filesystem(folder, storage_options)
        fs.invalidate_cache(path)
        start = len(path.rstrip("/")) + 1
        stamps = {name[start:]: stamp_of(info) for name, info in fs.find(path, detail=True).items()}
    return {name: stamp for name, stamp in stamps.items() if stamp is not None}


def content_hash(uri: str, storage_options: StorageOptions = None) -> str | None:
    """SHA-256 of the file's content as 64 hex digits; None where there is no such file.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        with open_input(uri, storage_options) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # it has readinto
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
