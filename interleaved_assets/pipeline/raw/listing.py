"""List the raw shards, find one by its key, and determine the version of its content."""

import datetime
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict

from interleaved_assets.io.storage import (
    as_storage_error,
    check_name,
    client_errors,
    content_version,
    displayable,
    file_info,
    filesystem,
    find_files_below,
    is_local,
    join,
    raw_stamp,
)
from interleaved_assets.io.storage.walk import is_hidden, is_kept_beside
from interleaved_assets.model.errors import NoSuchShard, StorageError
from interleaved_assets.pipeline.raw.bundles import (
    below_raw_root,
    bundle_files,
    bundle_stamp,
    bundle_version,
    bundles_of,
    find_bundle,
    is_file,
)
from interleaved_assets.pipeline.raw.keys import (
    is_cut,
    is_shard,
    preference,
    shard_key,
    shard_paths,
    without_key_ending,
)
from interleaved_assets.settings import StorageSettings

# Names of the time of a file's last change in fsspec info: local, S3, Google, Azure.
_TIMES: Final = ("mtime", "LastModified", "updated", "last_modified", "modified")
_HASHES: Final = ("xxh3:", "sha256:")
_cut_paths: dict[tuple[str, str], str] = {}
"""The path of each key that was cut, by raw root and key."""
_listing: Final = threading.Lock()


class RawSource(BaseModel):
    """A raw shard as it was when a stage read it; size in bytes."""

    model_config = ConfigDict(frozen=True)

    uri: str
    size: int
    stamp: str
    version: str


class RawShard(NamedTuple):
    """One file below the raw root. ``stamp`` changes whenever the file is written, even if its time is set back."""

    key: str
    uri: str
    size: int
    stamp: str
    files: Mapping[str, Mapping[str, Any]] = {}
    """Of a bundle, fsspec's info of each file by its URI; else empty."""
    landed: float | None = None
    """Time of the file's last change, in seconds since 1970; None if it is not known. Of a bundle, that of its newest
    file."""


class RawListing(NamedTuple):
    """The files below the raw root: the shards, and all other files."""

    shards: list[RawShard]
    """The shards in the order of their paths."""
    ignored: list[str]
    """Sorted paths, below the raw root, of files that are no shards by the rule in ``keys.py``.

    Hidden files, whose names begin with a dot, are left out: systems and uploads make them. The path of a link to a
    folder, which is not followed, ends in a slash.
    """
    unlisted: dict[str, str]
    """Error of each folder that cannot be listed, by its path below the raw root. Any absent shard may be in it."""

    @property
    def problem(self) -> str:
        """The errors of folders that cannot be listed; empty if all were listed."""
        return " ".join(self.unlisted.values())


def list_raw_shards(storage: StorageSettings) -> Iterator[RawShard]:
    """Yield every shard below the raw root that can be listed, in the order of their paths."""
    return iter(list_raw_files(storage).shards)


def list_raw_files(storage: StorageSettings) -> RawListing:
    """List every shard below the raw root, the ignored files, and the unlisted folders.

    Raises StorageError if the raw root itself cannot be listed.
    """
    with client_errors(storage.raw_root, "list the raw shards below"):
        fs, folder = filesystem(storage.raw_root, storage.options)
        fs.invalidate_cache()  # fsspec caches listings per process, and new shards may have landed
        root = folder.rstrip("/")
        if not fs.isdir(root):
            info = file_info(storage.raw_root, storage.options)  # raises where a local disk fails, which is no folder
            is_file_there = info is not None and info["type"] == "file"
            what = "is a file and no folder of shards" if is_file_there else "does not exist"
            raise StorageError(f"raw root {storage.raw_root} {what}: set storage.raw_root in the settings file")
        below = find_files_below(fs, root)
        found = {path: info for path, info in below.infos.items() if info["type"] != "directory"}
    start = len(root) + 1
    readable = [path[start:] for path, info in found.items() if is_file(info)]
    bundles = bundles_of(readable, storage)
    bundled = {path for files in bundles.values() for path in files}
    candidates = [path for path in readable if path not in bundled and is_shard(path, storage.raw_formats)]
    candidates = [path for path in candidates if without_key_ending(path) not in bundles]
    # of files with one key, the preferred one comes last and so replaces the others
    by_stem = {without_key_ending(path): path for path in sorted(candidates, key=preference, reverse=True)}
    shards = [
        _single(shard_key(path), join(storage.raw_root, path), found[f"{root}/{path}"])
        for path in sorted(by_stem.values())
    ]
    for path, members in bundles.items():
        infos = {join(storage.raw_root, member): found[f"{root}/{member}"] for member in members}
        shards.append(_bundled(shard_key(path), join(storage.raw_root, path), infos))
    if bundles:
        shards.sort(key=lambda shard: shard.uri)
    chosen = {f"{root}/{below_root}" for below_root in (*by_stem.values(), *bundled)}
    unlisted = {
        path[start:]: str(as_storage_error(error, displayable(path), "list")) for path, error in below.refused.items()
    }
    others = [
        path[start:] + ("/" if info.get("islink") and fs.isdir(path) else "")
        for path, info in found.items()
        if path not in chosen and not path.rpartition("/")[2].startswith(".") and not is_kept_beside(path[start:])
    ]
    return RawListing(shards, sorted(others), unlisted)


def find_raw_shard(key: str, storage: StorageSettings, known: RawSource | None = None) -> RawShard:
    """Return the shard with this partition key.

    ``known`` is its source in an earlier record, with the path of a cut key.
    """
    if not is_cut(key):
        paths = shard_paths(key, storage.raw_formats)
    elif known is not None and shard_key(below_raw_root(known.uri, storage)) == key:
        paths = [below_raw_root(known.uri, storage)]
    else:
        paths = [_cut_path(key, storage)]
    decoded = unquote(key, errors="surrogateescape")
    for path in [decoded, *paths] if find_bundle(decoded, storage) else paths:
        if not _is_listed_as(path, key, storage):
            continue
        if (found := _look_at(join(storage.raw_root, path), key, storage)) is not None:
            return found
    raise _not_there(key, storage)


def _is_listed_as(path: str, key: str, storage: StorageSettings) -> bool:
    """Return whether a listing may name a file ``path``, and gives it this key.

    Objects in a store may have empty and dotted folders in their names. On a local disk such a path leads to a file
    with another key, or out of the raw root.
    """
    dotted = not {"", ".", ".."}.isdisjoint(path.split("/"))
    return shard_key(path) == key and not is_hidden(path) and not (dotted and is_local(storage.raw_root))


def raw_shard_again(raw: RawShard, storage: StorageSettings) -> RawShard:
    """Return a shard as it is now; raise StorageError if it is gone.

    Of a bundle, the files that it had are looked at. A file that was added since was not read, and makes the shard
    stale. On a local disk this takes far less time than another listing of the folder.
    """
    if not raw.files:
        found = _look_at(raw.uri, raw.key, storage)
    else:
        now: Mapping[str, Mapping[str, Any] | None] = (
            {uri: file_info(uri, storage.options) for uri in raw.files}
            if is_local(raw.uri)
            else bundle_files(raw.uri, storage) or {}
        )
        files = {uri: info for uri in raw.files if (info := now.get(uri)) is not None}
        found = _bundled(raw.key, raw.uri, files) if files else None
    if found is None:
        raise _not_there(raw.key, storage)
    return found


def _look_at(uri: str, key: str, storage: StorageSettings) -> RawShard | None:
    """Return the shard at ``uri`` as it is now; None if there is no such file."""
    if (files := bundle_files(uri, storage)) is not None:
        return _bundled(key, uri, files)
    info = file_info(uri, storage.options)
    if info is None or info["type"] == "directory":
        return None
    return _single(key, uri, info)


def _single(key: str, uri: str, info: Mapping[str, Any]) -> RawShard:
    """Return the shard that is one file with this info of fsspec."""
    return RawShard(key, uri, info["size"], raw_stamp(info), landed=_landed(info))


def _bundled(key: str, uri: str, files: Mapping[str, Mapping[str, Any]]) -> RawShard:
    """Return the shard that the files of a bundle form."""
    size = sum(int(info["size"]) for info in files.values())
    times = [time for info in files.values() if (time := _landed(info)) is not None]
    return RawShard(key, uri, size, bundle_stamp(files), files, max(times, default=None))


def _landed(info: Mapping[str, Any]) -> float | None:
    """Return the time of a file's last change in seconds since 1970; None if it is missing or not in ISO format."""
    for name in _TIMES:
        value = info.get(name)
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str):
            try:
                value = datetime.datetime.fromisoformat(value)
            except ValueError:
                continue
        if isinstance(value, datetime.datetime):
            return value.timestamp()
    return None


def raw_content_version(shard: RawShard, storage: StorageSettings, known: RawSource | None = None) -> str:
    """Return the data version of a raw shard: ``etag:…`` if the store has one, else ``xxh3:…`` of the content.

    ``known`` is the shard's source in an earlier record. If its stamp is unchanged, its version is returned without
    reading the shard; else the content is hashed as it was then, so that records with ``sha256:…`` stay valid. A shard
    that was moved from a folder into a store with ETags is read once: the same bytes keep their version.

    Raises:
        StorageError: the shard cannot be read, or its name is not UTF-8.
    """
    check_name(shard.uri)
    if known is not None and (known.uri, known.size, known.stamp) == (shard.uri, shard.size, shard.stamp):
        return known.version
    like = known.version if known else ""

    def version(stamp: str) -> str:
        if shard.files:
            return bundle_version(shard.files, stamp, storage.options)
        return content_version(shard.uri, stamp, storage.options, like=like)

    found = version(shard.stamp)
    if known is not None and known.size == shard.size and like.startswith(_HASHES) and not found.startswith(_HASHES):
        return like if version("") == like else found
    return found


def seems_same(recorded: str, stamp: str) -> bool:
    """Return whether a file with this stamp seems to be the recorded one, without reading it.

    The time of its last change does not count: ``chmod`` or a hard link changes that of every file, and all shards
    would look stale. A stage compares it, and then reads the file. A stamp of an older version has only the time.
    """
    before, now = (one.partition(" changed:")[0] for one in (recorded, stamp))
    return now == before or now.startswith(f"{before} ")


def just_written(shard: RawShard, seconds: float) -> bool:
    """Return whether the shard's file was written within the last ``seconds``, and may still be growing.

    The result is False for object stores, which show an object only once its upload is complete, and if the time is
    unknown. For a time in the future, the distance to now counts.
    """
    is_file = shard.stamp.startswith("modified:")
    return is_file and shard.landed is not None and abs(time.time() - shard.landed) < seconds


def _cut_path(key: str, storage: StorageSettings) -> str:
    """Return the path below the raw root of a key that was cut. One listing finds the paths of all such keys.

    A key always stands for the same path, so the paths are kept while the process lives.
    """
    root = storage.raw_root
    with _listing:  # one thread lists, and the others use its result
        if (root, key) not in _cut_paths:
            cut = (raw for raw in list_raw_shards(storage) if is_cut(raw.key))
            _cut_paths.update({(root, raw.key): below_raw_root(raw.uri, storage) for raw in cut})
    if (root, key) not in _cut_paths:
        raise _not_there(key, storage)
    return _cut_paths[root, key]


def _not_there(key: str, storage: StorageSettings) -> NoSuchShard:
    stem = without_key_ending(key)
    hint = "" if stem == key else f": that of the tar {key} is {stem}, without the ending"
    if is_hidden(unquote(key, errors="surrogateescape")):
        hint = ". No file in a folder whose name begins with a dot is a shard"
    return NoSuchShard(
        f"shard {key!r} is not below {storage.raw_root}: it was moved or deleted (then interleaved forget removes what "
        f"is stored of it), or the key has a typo{hint}"
    )
