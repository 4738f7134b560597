"""Fetching of the bytes of ranges, of members of tars and of whole files; a failure becomes a row error."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Final, NamedTuple, TypeAlias

from fsspec.spec import AbstractFileSystem

from interleaved_assets.io.archive.index import TarMember
from interleaved_assets.io.archive.source import TarSource, open_tar
from interleaved_assets.io.storage import StorageOptions, as_storage_error, filesystem, is_local, local_path
from interleaved_assets.io.storage.atomic import BytesLike
from interleaved_assets.io.storage.filesystem import blames_no_file, client_errors, storage_errors
from interleaved_assets.io.storage.limits import LIMITS, TarLimits
from interleaved_assets.io.storage.local import LocalFile
from interleaved_assets.io.storage.ranges import Content
from interleaved_assets.model.errors import InterleavedError, StorageError, row_error

_COMPRESSED_TARS: Final = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")


class Source(NamedTuple):
    """Bytes to fetch: a part of ``path`` by its format, else a range (``end`` exclusive), else a member, else all."""

    path: str
    member: str | None = None
    start: int | None = None
    end: int | None = None
    part: str | None = None

    def range_of(self, size: int) -> tuple[int, int]:
        """Return the first byte and the end, of all of a file of ``size`` bytes if no range is given."""
        return (0, size) if self.start is None or self.end is None else (self.start, self.end)


class Access(NamedTuple):
    """The storage options, roots and limits with which the places that locators name are read."""

    storage_options: StorageOptions = None
    allowed_roots: Sequence[str] = ()
    """Folders and URLs that a locator may point below."""
    limits: TarLimits = LIMITS


Contents: TypeAlias = Callable[[Collection[Source]], Mapping[Source, Content | str]]
"""Returns the bytes of each source, or the row error that says why they are missing."""


def ranges_of(tar: TarSource) -> Contents:
    """Return the contents of sources that are ranges of an open uncompressed tar, whatever path they have."""
    return lambda sources: {source: _range(tar, source) for source in sources}


def parts_of(uri: str, fetch_parts: Callable[..., Iterable[tuple[str, bytes | str]]], access: Access) -> Contents:
    """Return the contents of sources that are parts of a file, read by its format's :attr:`.ShardFormat.fetch`."""

    def contents(sources: Collection[Source]) -> dict[Source, Content | str]:
        parts = [source.part for source in sources if source.part is not None]
        found = dict(fetch_parts(uri, parts, access.storage_options, access.limits))
        problem = row_error("invalid_source_ref", "the locator has no part of the file")
        return {source: found.get(source.part or "", problem) for source in sources}

    return contents


def _range(tar: TarSource, source: Source) -> Content | str:
    if source.start is None or source.end is None:
        return row_error("invalid_source_ref", "the locator has no range")
    return tar.content(TarMember("", source.start, source.end - source.start))


def is_compressed_tar(path: str) -> bool:
    """Return whether ``path`` is a compressed tar, whose members have no byte offset in the file."""
    return path.lower().endswith(_COMPRESSED_TARS)


def fetch(sources: Collection[Source], access: Access) -> dict[Source, BytesLike | str]:
    """Return the bytes of each source, or the row error that says why they are missing.

    Remote ranges and whole files take one ``cat_ranges`` call per filesystem. A local file, and a tar whose members are
    looked up, is opened once.

    Raises:
        StorageError: a disk, a server or this process failed, so that no row gets an error.
    """
    ranges: dict[int, tuple[AbstractFileSystem, dict[Source, tuple[str, int, int]]]] = {}
    local: defaultdict[str, list[Source]] = defaultdict(list)
    members: defaultdict[str, list[Source]] = defaultdict(list)
    parts: defaultdict[str, list[str]] = defaultdict(list)
    result: dict[Source, BytesLike | str] = {}
    limit = access.limits.max_member_bytes
    for source in sources:
        if source.part is not None:
            parts[source.path].append(source.part)
            continue
        if source.member is not None:
            members[source.path].append(source)
            continue
        if is_local(source.path):
            local[source.path].append(source)
            continue
        # of a remote file of unknown size, one byte more than is allowed
        start, end = source.range_of(limit + 1)
        try:
            fs, path = filesystem(source.path, access.storage_options)
        except (OSError, InterleavedError) as error:
            result[source] = _problem(error, source.path)
            continue
        if end - start > limit + (source.start is None):
            result[source] = _too_large(source.path, end - start, limit)
        elif start == end:
            result[source] = b""
        else:
            ranges.setdefault(id(fs), (fs, {}))[1][source] = (path, start, end)
    for path, of_file in local.items():
        result.update(_read_local(path, of_file, limit))
    for fs, wanted in ranges.values():
        result.update(_fetch_ranges(fs, wanted, limit))
    for path, wanted_members in members.items():
        result.update(_fetch_members(path, wanted_members, access))
    for path, wanted_parts in parts.items():
        found = _fetch_parts(path, wanted_parts, access)
        result.update({Source(path, part=part): data for part, data in found.items()})
    return result


def _fetch_parts(path: str, parts: Sequence[str], access: Access) -> dict[str, bytes | str]:
    # the formats import this folder, so that their registry is imported by name
    form = import_module("interleaved_assets.io.formats.registry").format_by_name(path)
    if form.fetch is None:
        return dict.fromkeys(parts, row_error("invalid_source_ref", f"{path}: {form.name} has no parts"))
    found: dict[str, bytes | str] = {}
    try:
        found.update(form.fetch(path, parts, access.storage_options, access.limits))
        problem = row_error("missing_member", f"{path} has no such part")
    except (OSError, InterleavedError) as error:
        problem = _problem(error, path)
    return {part: found.get(part, problem) for part in parts}


def _read_local(path: str, wanted: Sequence[Source], max_member_bytes: int) -> dict[Source, BytesLike | str]:
    found: dict[Source, BytesLike | str] = {}
    problem = ""
    try:
        with storage_errors(path, "read"), LocalFile(local_path(path), path) as file:
            for source in wanted:
                start, end = source.range_of(file.size)
                if end - start > max_member_bytes:
                    found[source] = _too_large(path, end - start, max_member_bytes)
                else:
                    data = file.read_at(start, end - start)
                    found[source] = data if len(data) == end - start else _short(source, data)
    except InterleavedError as error:
        problem = _problem(error, path)
    return {source: found.get(source, problem) for source in wanted}


def _fetch_ranges(
    fs: AbstractFileSystem, wanted: dict[Source, tuple[str, int, int]], max_member_bytes: int
) -> Iterator[tuple[Source, bytes | str]]:
    paths, starts, ends = (list(column) for column in zip(*wanted.values(), strict=True))
    found: Sequence[bytes | BaseException]
    try:
        with client_errors(", ".join(sorted({source.path for source in wanted})), "read"):
            found = fs.cat_ranges(paths, starts, ends, on_error="return")
    except StorageError as error:
        found = [error] * len(wanted)
    for source, start, end, data in zip(wanted, starts, ends, found, strict=True):
        if isinstance(data, BaseException):
            yield source, _problem(data, source.path)
        elif source.start is None:
            yield source, data if len(data) <= max_member_bytes else _too_large(source.path, None, max_member_bytes)
        elif len(data) != end - start:
            yield source, _short(source, data)
        else:
            yield source, data


def _fetch_members(path: str, wanted: list[Source], access: Access) -> Iterator[tuple[Source, BytesLike | str]]:
    """Yield the first member of each name, as far as the tar can be read."""
    missing = {source.member: source for source in wanted}
    try:
        with open_tar(path, access.storage_options, by_ranges=True, limits=access.limits) as tar:
            for member in tar.index.members:
                if (source := missing.pop(member.name, None)) is not None:
                    yield source, _member(tar, member, access.limits.max_member_bytes)
                if not missing:
                    return
            damage = tar.index.damage
        problem = damage and row_error("unreadable_source", f"{path} is not a sound tar: {damage}")
    except InterleavedError as error:
        problem = _problem(error, path)
    for source in missing.values():
        yield source, problem or row_error("missing_member", f"{source.member} is not in {path}")


def _member(tar: TarSource, member: TarMember, max_member_bytes: int) -> BytesLike | str:
    if member.size > max_member_bytes:
        return _too_large(f"{member.name} of {tar.uri}", member.size, max_member_bytes)
    data = tar.range(member.offset, member.size)
    if len(data) < member.size:
        return row_error("short_read", f"{member.name} of {tar.uri}: {len(data)} of {member.size} bytes")
    return data


def _short(source: Source, data: BytesLike) -> str:
    start, end = source.range_of(0)
    return row_error("short_read", f"{len(data)} of {end - start} bytes at offset {start} of {source.path}")


def _too_large(name: str, size: int | None, limit: int) -> str:
    return row_error("member_too_large", f"{name}: {'more than' if size is None else f'{size} bytes, over'} {limit}")


def _problem(error: BaseException, path: str) -> str:
    """Return the row error for an exception; raise it as a StorageError if it blames no file."""
    found = error if isinstance(error, InterleavedError) else as_storage_error(error, path, "read")
    if blames_no_file(error) or blames_no_file(found):
        raise found
    return row_error("unreadable_source", str(found))
