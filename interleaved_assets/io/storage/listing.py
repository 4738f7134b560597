"""Input files: their search, and their grouping into partitions."""

import glob
import logging
import os
import re
from collections.abc import Iterable, Sequence
from io import IOBase
from os import PathLike
from typing import Any, Final, NamedTuple

from fsspec.spec import AbstractFileSystem

from interleaved_assets.io.storage.filesystem import (
    StorageOptions,
    as_uri,
    filesystem,
    is_chain,
    is_local,
    local_path,
    storage_errors,
)
from interleaved_assets.io.storage.local import check_regular
from interleaved_assets.io.storage.walk import KEPT_BESIDE, find_infos, is_kept_beside
from interleaved_assets.model.errors import OptionError, StorageError
from interleaved_assets.model.shown import cut_list

FilePaths = str | PathLike[str] | Sequence[str | PathLike[str]]
"""A glob, a folder or a file, or a list of them; local or any fsspec URL."""

logger = logging.getLogger(__name__)

_NAMED: Final = 3
_PACKERS: Final = frozenset(("gz", "bz2", "xz", "zst", "lz4", "zip", "7z"))
"""Last endings of packed files. Others, as in ``a.tar.idx`` and ``a.tar.sha256``, are files beside a shard."""
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt]?)(i?)b)?\s*", re.IGNORECASE)


class InputFile(NamedTuple):
    """A file to read: an absolute path or a URL, and its size in bytes."""

    uri: str
    size: int


def dotted(extensions: Sequence[str], option: str) -> tuple[str, ...]:
    """Return extensions in lower case with their dot: ``png`` and ``.PNG`` become ``.png``.

    Raises:
        OptionError: an extension is not text, or only dots; the message names ``option``.
    """
    if odd := [item for item in extensions if not isinstance(item, str) or not item.strip(".")]:
        raise OptionError(f"{option} are file endings such as '.png' or 'png', got {odd[0]!r}")
    return tuple(f".{extension.lower().removeprefix('.')}" for extension in extensions)


def find_files(
    file_paths: FilePaths, extensions: Sequence[str], storage_options: StorageOptions = None
) -> list[InputFile]:
    """Find all input files, sorted by name, without duplicates.

    A folder is searched recursively for files with one of ``extensions`` (with dot, case ignored). A glob matches
    files with these extensions; folders that it matches are not searched. A path of an existing file is used with any
    extension, also if it has glob characters. FIFOs, sockets, devices and links to them are skipped in folders and
    globs, and refused as paths. A warning names those that look packed, such as ``a.tar.xz``.

    Raises:
        StorageError: a path is missing or unreadable, or a folder or glob holds no file with the right extension.
        OptionError: no path is given, or what is given is no path.
    """
    given: list[Any] = [file_paths]
    if isinstance(file_paths, Iterable) and not isinstance(file_paths, str | bytes | PathLike | IOBase):
        given = list(file_paths)
    if not given:
        raise OptionError("file_paths is empty: name a file, a folder, a glob or a list of them")
    suffixes = tuple(extension.lower() for extension in extensions)
    found: dict[str, InputFile] = {}
    for item in given:
        uri = as_uri(item, "file_paths")
        with storage_errors(uri, "find"):
            for name, size in _matches(uri, suffixes, storage_options):
                found[name] = InputFile(name, size)
    return [found[name] for name in sorted(found)]


def group_files(
    files: Sequence[InputFile], files_per_partition: int | None = None, blocksize: int | str | None = None
) -> list[list[InputFile]]:
    """Group consecutive files into partitions; without a limit, each partition has one file.

    Args:
        files: the files of :func:`find_files`.
        files_per_partition: maximum number of files.
        blocksize: maximum size in bytes (``512 * 2**20`` or ``"512MiB"``); a larger file gets its own partition.

    Raises:
        OptionError: both limits are given, or one is not positive.
    """
    if files_per_partition is not None and blocksize is not None:
        raise OptionError("files_per_partition and blocksize exclude each other: give one of the two")
    if blocksize is None:
        step = 1 if files_per_partition is None else files_per_partition
        if not isinstance(step, int) or step < 1:
            raise OptionError(f"files_per_partition must be a whole number from 1, got {files_per_partition!r}")
        return [list(files[start : start + step]) for start in range(0, len(files), step)]
    limit = parse_size(blocksize, "blocksize")
    groups: list[list[InputFile]] = []
    filled = 0
    for file in files:
        if not groups or filled + file.size > limit:
            groups.append([])
            filled = 0
        groups[-1].append(file)
        filled += file.size
    return groups


def parse_size(value: int | str, option: str = "size") -> int:
    """Parse bytes from a whole number or from text such as ``"512MiB"`` (1024-based) or ``"1.5 GB"`` (1000-based).

    Raises:
        OptionError: ``value`` is neither of these, or not positive; the message names ``option``.
    """
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match and (match[2] or not match[3]):
        power = " kmgt".index((match[2] or " ").lower())
        size = int(float(match[1]) * (1024 if match[3] else 1000) ** power)
    elif isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        raise OptionError(f"{option} must be bytes as a whole number, or text such as '512MiB' or '2GB', got {value!r}")
    if size < 1:
        raise OptionError(f"{option} must be at least one byte, got {value!r}")
    return size


def _matches(uri: str, suffixes: tuple[str, ...], storage_options: StorageOptions) -> list[tuple[str, int]]:
    """Return the absolute URI and size of each file at ``uri``, a file, folder or glob."""
    if is_local(uri):
        uri = str(local_path(uri))
    fs, path = filesystem(uri, storage_options)
    fs.invalidate_cache()  # a long-running process must see new shards
    try:
        entry = _entry(fs, path)
        if entry is not None and entry["type"] != "directory":
            if is_local(uri):
                check_regular(local_path(uri), uri)
            return [(uri, int(entry["size"] or 0))]
        entries = fs.glob(path, detail=True) if entry is None else find_infos(fs, path)
    except ValueError as error:
        raise OptionError(f"{uri} cannot be searched: {error}") from error
    what = "matches" if entry is None else "holds"
    files = {name: info for name, info in entries.items() if info["type"] != "directory" and _is_openable(info)}
    # what a conversion keeps beside its outputs is none of them, unless it is named
    chosen = {
        name: info
        for name, info in files.items()
        if name.lower().endswith(suffixes) and (KEPT_BESIDE in path.split("/") or not is_kept_beside(name))
    }
    if not chosen:
        raise StorageError(
            f"{uri} {what} no file that ends in {' or '.join(suffixes)}"
            f"{f' ({len(files)} with other endings)' if files else ''}. Check the path; a file "
            "with another ending can be named itself, and in Python file_extensions takes endings."
        )
    others = sorted(name.rpartition("/")[2] for name in files.keys() - chosen.keys())
    unpacked = ((name, name.lower().rpartition(".")) for name in others if name[0] != ".")
    if packed := [name for name, (stem, _, last) in unpacked if last in _PACKERS and stem.endswith(suffixes)]:
        named = cut_list(packed, _NAMED)
        logger.warning("%s: not read because of the last ending of the name: %s. Unpack or rename them", uri, named)
    return [(_with_path(uri, name, fs), int(info["size"] or 0)) for name, info in chosen.items()]


def _is_openable(info: dict[str, Any]) -> bool:
    """Return whether ``info`` is not a FIFO, socket or device, nor a link to one or to a folder.

    A link whose target is missing, or cannot be looked at, is kept: reading it fails and names it. A hidden one is not,
    since Emacs marks a file that is edited by such a link.
    """
    if not info.get("islink"):
        return info["type"] != "other"
    # unlike Path.is_file and Path.exists, these return False if the target cannot be looked at
    if os.path.exists(info["name"]):  # noqa: PTH110
        return os.path.isfile(info["name"])  # noqa: PTH113
    return not info["name"].rpartition("/")[2].startswith(".")


def _entry(fs: AbstractFileSystem, path: str) -> dict[str, Any] | None:
    """Return fsspec's info of ``path``; None if it is a glob and no file has exactly this name."""
    try:
        return dict(fs.info(path))
    except FileNotFoundError:
        if not glob.has_magic(path):
            raise
        return None


def _with_path(uri: str, path: str, fs: AbstractFileSystem) -> str:
    """Return the URI of ``path`` on the filesystem of ``uri``."""
    if is_local(uri):
        return path
    if not is_chain(uri):
        return str(fs.unstrip_protocol(path))
    # in a chain such as zip://*.tar::s3://bucket/a.zip or simplecache::s3://bucket/*.tar, the path belongs to the first
    # link with "://"
    links = uri.split("::")
    number = next(index for index, link in enumerate(links) if "://" in link)
    scheme = links[number].partition("://")[0]
    links[number] = f"{scheme}://{path.removeprefix(f'{scheme}://')}"
    return "::".join(links)
