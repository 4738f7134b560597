"""The raw shards: listing them, and the version of their content."""

import hashlib
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from fsspec.spec import AbstractFileSystem
from pydantic import BaseModel, ConfigDict

from interleaved_assets.io.storage import filesystem, join, open_input, storage_errors
from interleaved_assets.model.errors import StorageError
from interleaved_assets.pipeline.keys import SHARD_EXTENSIONS, is_cut, shard_key, shard_path
from interleaved_assets.settings import StorageSettings

_HASH_BLOCK: Final = 4 * 2**20


class Source(BaseModel):
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
    with storage_errors(storage.raw_root, "list the raw shards below"):
        fs, root = _root(storage)
        if not fs.isdir(root):
            raise StorageError(f"raw root {storage.raw_root} does not exist: set storage.raw_root in interleaved.toml")
        found = fs.find(root, detail=True)
    for path in sorted(found):
        if path.endswith(SHARD_EXTENSIONS) and not path.rsplit("/", 1)[-1].startswith("."):
            below = path[len(root) + 1 :]
            uri = join(storage.raw_root, below)
            yield RawShard(shard_key(below), uri, found[path]["size"], _stamp(found[path]))


def find_raw_shard(key: str, storage: StorageSettings) -> RawShard:
    """The shard with this partition key.

    Raises:
        StorageError: there is none below the raw root.
    """
    if is_cut(key):
        for shard in list_raw_shards(storage):
            if shard.key == key:
                return shard
    else:
        below = shard_path(key)
        uri = join(storage.raw_root, below)
        with storage_errors(uri, "look at"):
            fs, root = _root(storage)
            try:
                info = fs.info(join(root, below))
                return RawShard(key, uri, info["size"], _stamp(info))
            except FileNotFoundError:
                pass
    raise StorageError(
        f"shard {key!r} is not below {storage.raw_root}: it was moved or deleted after it was registered"
    )


def content_version(shard: RawShard, storage: StorageSettings, known: Source | None = None) -> str:
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
    digest = hashlib.sha256()
    with open_input(shard.uri, storage.options) as file:
        while block := file.read(_HASH_BLOCK):
            digest.update(block)
    return f"sha256:{digest.hexdigest()}"


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


def _root(storage: StorageSettings) -> tuple[AbstractFileSystem, str]:
    fs, root = filesystem(storage.raw_root, storage.options)
    fs.invalidate_cache()  # listings are cached per process, and shards land while it lives
    return fs, root.rstrip("/")


def _stamp(info: Mapping[str, Any]) -> str:
    if etag := info.get("ETag") or info.get("etag"):
        return f"etag:{etag.strip(chr(34))}-{info['size']}"
    return f"modified:{info.get('mtime') or info.get('LastModified') or info.get('created')}"
