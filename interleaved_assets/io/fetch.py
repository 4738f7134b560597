"""Fetching the bytes that locators name: ranges, members of tars, whole files; each once, however many rows want it."""

import gzip
import lzma
import tarfile
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from fsspec.spec import AbstractFileSystem

from interleaved_assets.io.storage import (
    StorageOptions,
    as_storage_error,
    filesystem,
    is_local,
    local_path,
    open_input,
)
from interleaved_assets.model.errors import InterleavedError, StorageError, StorageUnavailable, row_error

_COMPRESSED_TARS: Final = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
# what tarfile and the decompressors raise for damage (gzip's is an OSError)
_TAR_DAMAGE: Final = (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError)


class Source(NamedTuple):
    """Bytes to fetch: a range of ``path`` (``end`` exclusive), else a member of it, else the whole of it."""

    path: str
    member: str | None = None
    start: int | None = None
    end: int | None = None


def is_compressed_tar(path: str) -> bool:
    """Whether ``path`` is a tar whose members lie at no byte offset of the file, since all of it is compressed."""
    return path.lower().endswith(_COMPRESSED_TARS)


def fetch(
    sources: Collection[Source], *, storage_options: StorageOptions, max_member_bytes: int
) -> dict[Source, bytes | str]:
    """The bytes of each source, or the row error that says why there are none.

    Ranges and whole files take one ``cat_ranges`` call per filesystem; the members of one tar are read in one pass.

    Raises:
        StorageUnavailable: the storage failed in a way that may pass. It is no fault of the rows, so none is blamed.
    """
    ranges: dict[int, tuple[AbstractFileSystem, dict[Source, tuple[str, int, int]]]] = {}
    members: defaultdict[str, list[Source]] = defaultdict(list)
    result: dict[Source, bytes | str] = {}
    for source in sources:
        if source.member is not None:
            members[source.path].append(source)
            continue
        try:
            fs, path = filesystem(source.path, storage_options)
            start, end = _range(source, max_member_bytes)
        except (OSError, InterleavedError) as error:
            result[source] = _problem(error, source.path)
            continue
        if end - start > max_member_bytes + (source.start is None):
            result[source] = _too_large(source.path, end - start, max_member_bytes)
        elif start == end:
            result[source] = b""
        else:
            ranges.setdefault(id(fs), (fs, {}))[1][source] = (path, start, end)
    for fs, wanted in ranges.values():
        result.update(_fetch_ranges(fs, wanted, max_member_bytes))
    for path, wanted_members in members.items():
        result.update(_fetch_members(path, wanted_members, storage_options, max_member_bytes))
    return result


def _range(source: Source, max_member_bytes: int) -> tuple[int, int]:
    """First byte and end of what to ask for; a remote file of unknown size is asked for one byte more than allowed."""
    if is_local(source.path):
        path = local_path(source.path)
        size = path.stat().st_size
        if not path.is_file():
            raise StorageError(f"cannot read {source.path}: it is not a regular file")
        if source.start is None or source.end is None:
            return 0, size
    elif source.start is None or source.end is None:
        return 0, max_member_bytes + 1
    return source.start, source.end


def _fetch_ranges(
    fs: AbstractFileSystem, wanted: dict[Source, tuple[str, int, int]], max_member_bytes: int
) -> Iterator[tuple[Source, bytes | str]]:
    paths, starts, ends = (list(column) for column in zip(*wanted.values(), strict=True))
    found = fs.cat_ranges(paths, starts, ends, on_error="return")
    for source, start, end, data in zip(wanted, starts, ends, found, strict=True):
        if isinstance(data, BaseException):
            yield source, _problem(data, source.path)
        elif source.start is None:
            yield source, data if len(data) <= max_member_bytes else _too_large(source.path, None, max_member_bytes)
        elif len(data) != end - start:
            detail = f"{len(data)} of {end - start} bytes at offset {start} of {source.path}"
            yield source, row_error("short_read", detail)
        else:
            yield source, data


def _fetch_members(
    path: str, wanted: list[Source], storage_options: StorageOptions, max_member_bytes: int
) -> Iterator[tuple[Source, bytes | str]]:
    """The first member of each name, as far as the tar can be read."""
    missing = {source.member: source for source in wanted}
    try:
        with open_input(path, storage_options) as file, tarfile.open(fileobj=file, mode="r:*") as tar:
            for info in tar:
                if info.name in missing:
                    yield missing[info.name], _member(tar, info, path, max_member_bytes)
                    del missing[info.name]
                if not missing:
                    return
        problem = None
    except _TAR_DAMAGE as error:
        problem = row_error("unreadable_source", f"{path} is not a sound tar: {str(error) or 'it ends too early'}")
    except InterleavedError as error:
        problem = _problem(error, path)
    for source in missing.values():
        yield source, problem or row_error("missing_member", f"{source.member} is not in {path}")


def _member(tar: tarfile.TarFile, info: tarfile.TarInfo, path: str, max_member_bytes: int) -> bytes | str:
    if info.size > max_member_bytes:
        return _too_large(f"{info.name} of {path}", info.size, max_member_bytes)
    file = tar.extractfile(info) if info.isreg() else None
    if file is None:
        return row_error("missing_member", f"{info.name} of {path} is not a regular file")
    try:
        return file.read()
    except tarfile.ReadError as error:
        return row_error("short_read", f"{info.name} of {path}: {error}")


def _too_large(name: str, size: int | None, limit: int) -> str:
    return row_error("member_too_large", f"{name}: {'more than' if size is None else f'{size} bytes, over'} {limit}")


def _problem(error: BaseException, path: str) -> str:
    """The row error for an exception.

    Raises:
        StorageUnavailable: the failure may pass.
    """
    if not isinstance(error, InterleavedError):
        error = as_storage_error(error, path, "read")
    if isinstance(error, StorageUnavailable):
        raise error
    return row_error("unreadable_source", str(error))
