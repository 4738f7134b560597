"""All files below a folder, on any filesystem, and those of its folders that could not be listed.

fsspec's ``find`` skips a folder that the storage refuses to list, as if it had no files.
"""

import re
from typing import Any, Final, NamedTuple

from fsspec.spec import AbstractFileSystem

from interleaved_assets.io.storage.filesystem import StorageOptions, as_storage_error, client_errors, filesystem
from interleaved_assets.model.errors import OptionError

_OF_THE_DISK: Final = "lost+found"
"""A folder at the top of a disk that only root may list."""
KEPT_BESIDE: Final = "_interleaved"
"""The folder in which a conversion keeps, in two folders, the ledgers and records of its outputs."""
_KEPT_FOLDER: Final = re.compile(rf"(?:(?<=/)|^){KEPT_BESIDE}/(?:dropped|records)/")
_HIDDEN_FOLDER: Final = re.compile(r"(?:(?<=/)|^)\.[^./][^/]*/")


def is_hidden(path: str) -> bool:
    """Return whether the name of the file, or of a folder on the way to it, begins with a dot or is a conversion's."""
    is_dotted = path.rpartition("/")[2].startswith(".") or _HIDDEN_FOLDER.search(path) is not None
    return is_dotted or is_kept_beside(path)


def is_kept_beside(path: str) -> bool:
    """Return whether the file at ``path`` is in a folder of ledgers or records that a conversion has written."""
    return _KEPT_FOLDER.search(path) is not None


class FoundFiles(NamedTuple):
    """The files below a folder."""

    infos: dict[str, dict[str, Any]]
    """fsspec's info of each file, by path; for a link to a file, the info of that file."""
    refused: dict[str, OSError]
    """The error of each folder below it that cannot be listed, by path; hidden folders are left out."""


def find_files_below(fs: AbstractFileSystem, folder: str) -> FoundFiles:
    """Find all files below ``folder``; none if it does not exist.

    In S3 this takes one request for 1,000 files, at any depth.

    Raises:
        OptionError: ``folder`` names no bucket.
        OSError: ``folder`` itself cannot be listed.
        Exception: any folder cannot be listed, and the client of the storage raises no ``OSError`` for it.
    """
    if "s3" in fs.protocol:
        return FoundFiles(_objects_below(fs, folder.rstrip("/")), {})
    fs.invalidate_cache()  # also for the folders below: clients keep listings as long as they live
    found = FoundFiles({}, {})
    folders = [folder]
    while folders:
        below = folders.pop()
        try:
            listing = fs.ls(below, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            continue  # the folder does not exist, or was removed meanwhile
        except OSError as error:
            if below == folder:
                raise
            if below.rpartition("/")[2] != _OF_THE_DISK and not is_hidden(f"{below[len(folder) :].lstrip('/')}/"):
                found.refused[below] = error
            continue
        for info in listing:
            path = info["name"].rstrip("/")
            if path == below.rstrip("/"):
                continue  # a file, or an object that represents the folder
            if info["type"] == "directory":
                folders.append(path)
            else:
                found.infos[path] = followed(fs, info) if info.get("islink") else info
    return found


def find_infos(fs: AbstractFileSystem, folder: str) -> dict[str, dict[str, Any]]:
    """Return fsspec's info of each file below ``folder``, by path, as :func:`find_files_below` finds them.

    Raises:
        OSError: the folder cannot be listed.
        StorageError: a folder below it cannot be listed.
    """
    found = find_files_below(fs, folder)
    for path, error in found.refused.items():
        raise as_storage_error(error, path, "list") from error
    return found.infos


def files_below(folder: str, storage_options: StorageOptions = None) -> dict[str, dict[str, Any]]:
    """Return fsspec's info of each file below the folder at a URI, by path relative to it; none if it does not exist.

    Raises:
        StorageError: it, or a folder below it, cannot be listed.
    """
    with client_errors(folder, "list"):
        fs, path = filesystem(folder, storage_options)
        start = len(path.rstrip("/")) + 1
        return {name[start:]: info for name, info in find_infos(fs, path).items()}


def _objects_below(fs: AbstractFileSystem, folder: str) -> dict[str, dict[str, Any]]:
    bucket, _, key = folder.partition("/")
    if not bucket:
        raise OptionError("the URL names no bucket: write s3://bucket/folder")
    # s3fs would cache the listing of a path, and would list an object at the path itself; with a prefix it does neither
    found = fs.find(bucket, prefix=f"{key}/" if key else "", detail=True)
    return {path: info for path, info in found.items() if not path.endswith("/")}  # empty objects represent folders


def followed(fs: AbstractFileSystem, link: dict[str, Any]) -> dict[str, Any]:
    """Return the info of the file that a link leads to, whose time a listing lacks; ``link`` if it leads to no file."""
    try:
        file = fs.info(link["name"])
    except OSError:
        return link
    return dict(file) if file["type"] == "file" else link
