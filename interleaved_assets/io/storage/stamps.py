"""Stamps: short texts that change whenever a file is written, so that changes are found without reading the file.

The stamp of an object in a store is its ETag, which depends on the content or the upload. The stamp of a local file is
the modification time in nanoseconds, the size and the inode; on other filesystems, size and modification time.
"""

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
from interleaved_assets.io.storage.inputs import file_sha256, file_xxh3
from interleaved_assets.io.storage.walk import files_below
from interleaved_assets.model.errors import StorageError


def stamp_of(info: Mapping[str, Any]) -> str | None:
    """Return the stamp of a remote file, from fsspec's ``info`` or ``find``; None if it is not a file.

    Without an ETag and a modification time, the stamp is only the size.
    """
    if info.get("type", "file") != "file":
        return None
    if etag := info.get("ETag") or info.get("etag"):
        return etag_stamp(etag, info["size"])
    written = info.get("mtime") or info.get("LastModified") or info.get("created")
    return f"modified:{written}-{info['size']}"


def raw_stamp(info: Mapping[str, Any]) -> str:
    """Return the stamp of a raw shard, from fsspec's ``info`` of a local or remote file.

    That of a local file has its time, inode and time of its last change. A program that keeps times, such as
    ``cp -p`` or ``rsync -t``, cannot set the last.
    """
    if etag := info.get("ETag") or info.get("etag"):
        return etag_stamp(etag, info["size"])
    time = f"modified:{info.get('mtime') or info.get('LastModified') or info.get('created')}"
    return f"{time} inode:{info['ino']} changed:{info.get('created')}" if "ino" in info else time


def content_version(uri: str, stamp: str, storage_options: StorageOptions = None, *, like: str = "") -> str:
    """Return the version of a file's content: ``etag:…`` if its stamp has one, else ``xxh3:…`` of the content.

    Args:
        stamp: the file's :func:`raw_stamp`.
        like: a version to compare with; one of an older version of this package, ``sha256:…``, gives such a version.

    Raises:
        StorageError: the file cannot be read.
    """
    if stamp.startswith("etag:"):
        return stamp
    if like.startswith("sha256:"):
        return f"sha256:{file_sha256(uri, storage_options)}"
    return f"xxh3:{file_xxh3(uri, storage_options)}"


def etag_stamp(etag: str, size: int) -> str:
    """Return the stamp of an object of ``size`` bytes; ``etag`` may be quoted."""
    return f"etag:{etag.strip(chr(34))}-{size}"


def local_stamp(status: os.stat_result) -> str:
    """Return the stamp of a local file. A renamed file keeps its stamp; a copy gets another one."""
    return f"modified:{status.st_mtime_ns}-{status.st_size}-{status.st_ino}"


def read_stamp(uri: str, storage_options: StorageOptions = None) -> str | None:
    """Return the current stamp of the file at ``uri``, in one request; None if no such file exists.

    Raises:
        StorageError: the storage cannot be reached, or access is denied.
    """
    with storage_errors(uri, "look at"):
        try:
            if is_local(uri):
                return local_stamp(local_path(uri).stat())
            fs, path = filesystem(uri, storage_options)
            fs.invalidate_cache()  # for a path, adlfs keeps the listing of its folder
            return stamp_of(fs.info(path))
        except (FileNotFoundError, NotADirectoryError):
            return None


def list_stamps(folder: str, storage_options: StorageOptions = None) -> dict[str, str]:
    """List the stamps of all files below a remote folder, by path relative to it.

    Raises:
        StorageError: it cannot be listed.
    """
    found = {name: stamp_of(info) for name, info in files_below(folder, storage_options).items()}
    return {name: stamp for name, stamp in found.items() if stamp is not None}


def content_hash(uri: str, storage_options: StorageOptions = None, *, like: str = "") -> str | None:
    """Return the hash of the file's content, as :func:`content_version` does; None if no such file exists.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        return content_version(uri, "", storage_options, like=like)
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
