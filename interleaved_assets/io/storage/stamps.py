"""Stamps: short texts that change whenever a file is written, so that changes are found without reading the file.

For object stores it is the ETag, which depends on the content or the upload; for local files the modification time in
nanoseconds, the size and the inode; for other filesystems size and modification time.
"""

import os
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from interleaved_assets.io.storage.filesystem import (
    StorageOptions,
    filesystem,
    is_local,
    local_path,
    storage_errors,
)
from interleaved_assets.io.storage.inputs import file_sha256
from interleaved_assets.io.storage.s3_listing import PAGE_OBJECTS, Page, is_s3, list_page, list_pages
from interleaved_assets.io.storage.walk import files_below
from interleaved_assets.model.errors import StorageError

_PAGE_RATIO: Final = 2
"""Objects asked for on a page for each wanted name: other files lie between them."""
_FEWEST_OF_A_PAGE: Final = 16
"""A page is worth its request if one of so many of its objects is wanted."""


def stamp_of(info: Mapping[str, Any]) -> str | None:
    """The stamp of a remote file, from fsspec's ``info`` or ``find``; None if it is not a file.

    Without an ETag and a modification time, the stamp is only the size.
    """
    if info.get("type", "file") != "file":
        return None
    if etag := info.get("ETag") or info.get("etag"):
        return etag_stamp(etag, info["size"])
    written = info.get("mtime") or info.get("LastModified") or info.get("created")
    return f"modified:{written}-{info['size']}"


def etag_stamp(etag: str, size: int) -> str:
    """The stamp of an object of ``size`` bytes; ``etag`` may be quoted."""
    return f"etag:{etag.strip(chr(34))}-{size}"


def local_stamp(status: os.stat_result) -> str:
    """The stamp of a local file. A renamed file keeps its stamp; a copy gets another one."""
    return f"modified:{status.st_mtime_ns}-{status.st_size}-{status.st_ino}"


def read_stamp(uri: str, storage_options: StorageOptions = None) -> str | None:
    """The current stamp of the file at ``uri``, in one request; None if there is no such file.

    Raises:
        StorageError: the storage cannot be reached, or access is denied.
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
    """Stamps of all files below a remote folder, by path relative to it; in S3 one request lists 1,000 files.

    Raises:
        StorageError: it cannot be listed.
    """
    with storage_errors(folder, "list"):
        fs, path = filesystem(folder, storage_options)
        if is_s3(fs):
            stamps: dict[str, str] = {}
            for page in list_pages(fs, path):
                stamps.update(_page_stamps(page))
            return stamps
    found = {name: stamp_of(info) for name, info in files_below(folder, storage_options).items()}
    return {name: stamp for name, stamp in found.items() if stamp is not None}


def find_stamps(folder: str, names: Collection[str], storage_options: StorageOptions = None) -> dict[str, str]:
    """Stamps of the files ``names`` below a remote folder, from as few pages of its listing as have them.

    A page begins at the first name that is not known yet, so names that lie close together take one request for up to
    1,000 of them. Where pages would have few of the names, as with names scattered over a folder, listing ends.

    Returns:
        Stamps by name. A name that is left out may exist: it was not listed, or the server has an order of its own. On
        other filesystems than S3 all are left out.

    Raises:
        StorageError: the folder cannot be listed.
    """
    found: dict[str, str] = {}
    with storage_errors(folder, "list"):
        fs, path = filesystem(folder, storage_options)
        left = sorted(names, key=str.encode) if is_s3(fs) else []
        while left:
            at_most = min(PAGE_OBJECTS, _PAGE_RATIO * len(left))
            # a page begins after a name: after its own beginning comes little but itself
            page = list_page(fs, path, after=left[0][:-1], at_most=at_most)
            stamps = dict(_page_stamps(page))
            found |= {name: stamps[name] for name in left if name in stamps}
            if not page.next_page or not page.names:
                return found
            passed = bisect_right(left, page.names[-1].encode(), key=str.encode)
            if passed * _FEWEST_OF_A_PAGE < at_most:
                return found
            left = left[passed:]
    return found


def _page_stamps(page: Page) -> Iterator[tuple[str, str]]:
    return zip(page.names, map(etag_stamp, page.etags, page.sizes), strict=True)


def content_hash(uri: str, storage_options: StorageOptions = None) -> str | None:
    """SHA-256 of the file's content as 64 hex digits; None if there is no such file.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        return file_sha256(uri, storage_options)
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
