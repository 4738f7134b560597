"""Bundles: small files of a folder that form one shard together, by ``storage.bundles``.

The files of one format in a folder form as many bundles as the setting says. A file belongs to one by the hash of its
name before the ending, so that another file changes one shard, and files beside it, such as captions, come with it. The
key of a bundle is ``<folder>/<format>-<number>-of-<bundles>``; there is no file of that name.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import xxhash

from interleaved_assets.io.formats.format import ShardFormat
from interleaved_assets.io.formats.registry import all_formats, format_by_name
from interleaved_assets.io.storage import StorageOptions, filesystem, join, storage_errors
from interleaved_assets.io.storage.stamps import content_version, raw_stamp
from interleaved_assets.io.storage.walk import followed, is_hidden
from interleaved_assets.io.tar.layout import split_extension
from interleaved_assets.settings import StorageSettings


class Bundle(NamedTuple):
    """The place of a bundle: folder below the raw root, empty for the raw root itself, and its number among those."""

    folder: str
    format: str
    number: int
    of: int

    @property
    def path(self) -> str:
        """The path of the bundle below the raw root, at which there is no file."""
        digits = len(str(self.of - 1))
        name = f"{self.format}-{self.number:0{digits}}-of-{self.of}"
        return f"{self.folder}/{name}" if self.folder else name


def bundles_of(paths: Iterable[str], storage: StorageSettings) -> dict[str, list[str]]:
    """Return the sorted files of each bundle, by the path of the bundle; ``paths`` are below the raw root."""
    if not storage.bundles:
        return {}
    found: dict[str, list[str]] = {}
    beside: list[tuple[ShardFormat, str]] = []
    formats = [one for one in all_formats() if one.name in storage.bundles]
    owners: set[tuple[str, str]] = set()
    for path in paths:
        if is_hidden(path):
            continue
        lower = path.lower()
        for one in formats:
            if lower.endswith(one.endings):
                found.setdefault(_bundle(path, one.name, storage).path, []).append(path)
                owners.add((one.name, split_extension(path)[0]))
            elif lower.endswith(one.beside):
                beside.append((one, path))
    for one, path in beside:
        if (one.name, split_extension(path)[0]) in owners:
            found[_bundle(path, one.name, storage).path].append(path)
    return {path: sorted(files) for path, files in found.items()}


def find_bundle(path: str, storage: StorageSettings) -> Bundle | None:
    """Return the bundle with a path below the raw root; None if it is no bundle of the settings."""
    folder, _, name = path.rpartition("/")
    if (found := re.fullmatch(r"(.+)-(\d+)-of-(\d+)", name)) is None:
        return None
    bundle = Bundle(folder, found[1], int(found[2]), int(found[3]))
    is_set = storage.bundles.get(bundle.format) == bundle.of and bundle.number < bundle.of
    return bundle if is_set and bundle.path == path else None


def raw_format(uri: str, storage: StorageSettings) -> ShardFormat:
    """Return the format of the raw shard at ``uri``, which may be a bundle."""
    if (bundle := find_bundle(below_raw_root(uri, storage), storage)) is None:
        return format_by_name(uri)
    return next(one for one in all_formats() if one.name == bundle.format)


def bundle_files(uri: str, storage: StorageSettings) -> dict[str, Mapping[str, Any]] | None:
    """Return fsspec's info of each file of the bundle at ``uri``, by its URI; None if it has none or is no bundle."""
    if not storage.bundles or (bundle := find_bundle(below_raw_root(uri, storage), storage)) is None:
        return None
    folder = join(storage.raw_root, bundle.folder) if bundle.folder else storage.raw_root
    with storage_errors(folder, "list"):
        fs, place = filesystem(folder, storage.options)
        fs.invalidate_cache(place)
        if not fs.isdir(place):
            return None
        found = (followed(fs, info) if info.get("islink") else info for info in fs.ls(place, detail=True))
        infos = {info["name"].rstrip("/").rpartition("/")[2]: info for info in found}
    start = f"{bundle.folder}/" if bundle.folder else ""
    paths = [f"{start}{name}" for name, info in infos.items() if is_file(info)]
    files = bundles_of(paths, storage).get(bundle.path, [])
    return {join(storage.raw_root, path): infos[path.rpartition("/")[2]] for path in files} or None


def is_file(info: Mapping[str, Any]) -> bool:
    """Return whether an entry of a listing can be read as a file, which a FIFO, a socket or a device cannot."""
    return info["type"] != "directory" and (info["type"] != "other" or bool(info.get("islink")))


def bundle_stamp(files: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a stamp that changes whenever a file of the bundle is written, added or removed.

    It has the time of the newest file, unless the store has ETags.
    """
    stamps = [
        (uri.rpartition("/")[2], raw_stamp(info).partition(" changed:")[0]) for uri, info in sorted(files.items())
    ]
    digest = f"files:{xxhash.xxh3_128_hexdigest(repr(stamps).encode())}"
    times = [stamp.partition(":")[2].partition(" ")[0] for _, stamp in stamps if stamp.startswith("modified:")]
    return f"modified:{max(times)} {digest}" if times else digest


def bundle_version(files: Mapping[str, Mapping[str, Any]], stamp: str, options: StorageOptions) -> str:
    """Return the version of the content of a bundle with these files; of its ETags if ``stamp`` is made of them.

    Raises:
        StorageError: a file cannot be read.
    """
    if stamp.startswith("files:"):  # of ETags
        return stamp
    versions = [(one.rpartition("/")[2], content_version(one, "", options)) for one in files]
    return f"xxh3:{xxhash.xxh3_128_hexdigest(repr(versions).encode())}"


def _bundle(path: str, format_name: str, storage: StorageSettings) -> Bundle:
    folder, _, name = path.rpartition("/")
    of = storage.bundles[format_name]
    stem = split_extension(name)[0].encode("utf-8", "surrogateescape")
    return Bundle(folder, format_name, xxhash.xxh3_64_intdigest(stem) % of, of)


def below_raw_root(uri: str, storage: StorageSettings) -> str:
    """Return the path below the raw root of what has this URI."""
    return uri.removeprefix(join(storage.raw_root, ""))
