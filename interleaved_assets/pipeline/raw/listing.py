"""The raw shards: listing them, and the version of their content."""

import math
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict

from interleaved_assets.io.storage import file_sha256, filesystem, join, storage_errors
from interleaved_assets.model.errors import StorageError
from interleaved_assets.pipeline.raw.keys import SHARD_EXTENSIONS, is_cut, shard_key, shard_path
from interleaved_assets.settings import StorageSettings

_cut_paths: dict[str, tuple[float, dict[str, str]]] = {}
"""By raw root: when it was listed, and the path of each key that was cut."""
_listing: Final = threading.Lock()


class RawSource(BaseModel):
    """A raw shard as it was when a stage read it; size in bytes."""

    model_config = ConfigDict(frozen=True)

    uri: str
    size: int
    stamp: str
    version: str


class RawShard(NamedTuple):
    """One tar below the raw root. ``stamp`` changes whenever the file is written; it is no version yet."""

    key: str
    uri: str
    size: int
    stamp: str


def list_raw_shards(storage: StorageSettings) -> Iterator[RawShard]:
    """Every shard below the raw root, in the order of their paths.

    Raises:
        StorageError: the raw root is missing or cannot be listed.
    """
    return (shard for shard, _ in list_raw_files(storage))


def list_raw_files(storage: StorageSettings) -> Iterator[tuple[RawShard, Mapping[str, Any]]]:
    """Every shard below the raw root with what the filesystem tells of its file, in the order of their paths.

    Raises:
        StorageError: the raw root is missing or cannot be listed.
    """
    with storage_errors(storage.raw_root, "list the raw shards below"):
        fs, folder = filesystem(storage.raw_root, storage.options)
        fs.invalidate_cache()  # listings are cached per process, and shards land while it lives
        root = folder.rstrip("/")
        if not fs.isdir(root):
            raise StorageError(f"raw root {storage.raw_root} does not exist: set storage.raw_root in interleaved.toml")
        found = fs.find(root, detail=True)
    for path in sorted(found):
        is_file = found[path]["type"] != "other" or found[path].get("islink")  # no FIFO, socket or device
        if is_file and path.endswith(SHARD_EXTENSIONS) and not path.rsplit("/", 1)[-1].startswith("."):
            below = path[len(root) + 1 :]
            uri = join(storage.raw_root, below)
            yield RawShard(shard_key(below), uri, found[path]["size"], _stamp(found[path])), found[path]


def find_raw_shard(key: str, storage: StorageSettings, known: RawSource | None = None) -> RawShard:
    """The shard with this partition key; ``known`` is what was recorded of it before, which tells where it lay.

    Raises:
        StorageError: there is none below the raw root.
    """
    if not is_cut(key):
        below = shard_path(key)
    elif known is not None and shard_key(_below(known.uri, storage)) == key:
        below = _below(known.uri, storage)
    else:
        below = _cut_path(key, storage)
    return raw_shard_at(join(storage.raw_root, below), key, storage)


def raw_shard_at(uri: str, key: str, storage: StorageSettings) -> RawShard:
    """The shard that lies at ``uri`` and has this key, as it is now.

    Raises:
        StorageError: it is not there.
    """
    with storage_errors(uri, "look at"):
        fs, path = filesystem(uri, storage.options)
        fs.invalidate_cache(path)
        try:
            info = fs.info(path)
        except FileNotFoundError:
            raise _not_there(key, storage) from None
    return RawShard(key, uri, info["size"], _stamp(info))


def raw_content_version(shard: RawShard, storage: StorageSettings, known: RawSource | None = None) -> str:
    """The data version of a raw shard: ``etag:…`` where the store has one, else ``sha256:…`` of the content.

    ``known`` is what was recorded of the shard before: with an unchanged stamp its version holds, and nothing is read.

    Raises:
        StorageError: it cannot be read, or its name cannot be written down.
    """
    check_name(shard)
    if shard.stamp.startswith("etag:"):
        return shard.stamp
    if known is not None and (known.uri, known.size, known.stamp) == (shard.uri, shard.size, shard.stamp):
        return known.version
    return f"sha256:{file_sha256(shard.uri, storage.options)}"


def just_written(shard: RawShard, seconds: float) -> bool:
    """Whether the shard's file was written within the last ``seconds``, and may still be growing.

    Never so in a store that shows an object only once its upload is complete, nor where it does not say when. A time
    ahead of our clock counts by its distance.
    """
    kind, _, modified = shard.stamp.partition(":")
    if kind != "modified" or not seconds:
        return False
    try:
        return abs(time.time() - float(modified)) < seconds
    except ValueError:
        return False


def check_name(shard: RawShard) -> None:
    """Make sure that the shard's name can stand in a record.

    Raises:
        StorageError: it is not UTF-8, which some file systems allow.
    """
    try:
        shard.uri.encode()
    except UnicodeEncodeError as error:
        name = shard.uri.encode("utf-8", "backslashreplace").decode()
        raise StorageError(f"{name}: the file's name is not UTF-8; rename it") from error


def _cut_path(key: str, storage: StorageSettings) -> str:
    """The path below the raw root that has this key, which was cut; one listing tells those of all such keys.

    A key stands for one path for good, so what was listed once holds as long as the process lives. A key that is not
    among it takes a listing that began after it was asked for.
    """
    asked = time.monotonic()
    with _listing:  # of many that ask at once, one lists
        began, paths = _cut_paths.get(storage.raw_root, (-math.inf, {}))
        if key not in paths and began < asked:
            began = time.monotonic()
            paths = {raw.key: _below(raw.uri, storage) for raw in list_raw_shards(storage) if is_cut(raw.key)}
            _cut_paths[storage.raw_root] = began, paths
    if key not in paths:
        raise _not_there(key, storage)
    return paths[key]


def _below(uri: str, storage: StorageSettings) -> str:
    return uri.removeprefix(join(storage.raw_root, ""))


def _not_there(key: str, storage: StorageSettings) -> StorageError:
    return StorageError(
        f"shard {key!r} is not below {storage.raw_root}: it was moved or deleted after it was registered"
    )


def _stamp(info: Mapping[str, Any]) -> str:
    if etag := info.get("ETag") or info.get("etag"):
        return f"etag:{etag.strip(chr(34))}-{info['size']}"
    return f"modified:{info.get('mtime') or info.get('LastModified') or info.get('created')}"
