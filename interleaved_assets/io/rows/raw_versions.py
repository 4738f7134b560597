"""Rows by reference: they name their images by locator and size in the raw shard that they were made from.

The schema of their table has the version of that raw shard, so that other bytes are not taken for it.

The pipeline compares a raw shard with the record of ``normalized``. The library has no record: it compares the file
that a locator names with the entry in the schema, which Parquet stores.
"""

import json
from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.storage import StorageOptions, content_version, file_info, is_local, locator_path, raw_stamp
from interleaved_assets.io.storage.filesystem import blames_no_file
from interleaved_assets.model.columns import BINARY_SIZE, BINARY_SIZE_TYPE
from interleaved_assets.model.errors import ShardError, StorageError, row_error

_KEY: Final = b"interleaved_raw_shards"
_known: Final[dict[tuple[str, str, str], str]] = {}
"""Versions of local files that this process has computed, by path, stamp and kind of hash: each is hashed once."""


def is_by_reference(schema: pa.Schema) -> bool:
    """Return whether rows of ``schema`` name their images by locator and size."""
    return BINARY_SIZE in schema.names and str(schema.field(BINARY_SIZE).type) == BINARY_SIZE_TYPE


def image_bytes(table: pa.Table) -> pa.ChunkedArray:
    """Return the bytes of each row's image, whether ``table`` has them or names them; null for rows without an image.

    Args:
        table: rows with ``binary_content``, and with :data:`BINARY_SIZE` if images are referenced.
    """
    sizes = pc.binary_length(table["binary_content"])
    return pc.coalesce(sizes, table[BINARY_SIZE].cast(pa.int64())) if is_by_reference(table.schema) else sizes


def with_raw_version(schema: pa.Schema, uri: str, size: int, version: str) -> pa.Schema:
    """Return ``schema`` with the size in bytes and the content version of the raw shard that its rows name."""
    return _with_versions(schema, {locator_path(uri): {"size": size, "version": version}})


def with_raw_versions_of(schema: pa.Schema, others: Iterable[pa.Schema]) -> pa.Schema:
    """Return ``schema`` with the raw shards of all ``others``.

    Raises:
        ShardError: two of them were made from one raw shard with different contents.
    """
    merged: dict[str, dict[str, int | str]] = {}
    for other in others:
        for path, stated in _versions(other).items():
            if merged.setdefault(path, stated) != stated:
                raise ShardError(f"rows were made from {path}, and others from another content of it: read them apart")
    return _with_versions(schema, merged) if merged else schema


def without_raw_versions(table: pa.Table) -> pa.Table:
    """Return ``table``, whose rows have their bytes now, without its entries of raw shards."""
    kept = {key: value for key, value in (table.schema.metadata or {}).items() if key != _KEY}
    return table.replace_schema_metadata(kept or None)


class RawShards:
    """The raw shards that the rows of one table name, compared with what they were when the rows were made."""

    def __init__(self, schema: pa.Schema, storage_options: StorageOptions) -> None:
        self._stated, self._options = _versions(schema), storage_options
        self._stamps: dict[str, str] = {}
        self._problems: dict[str, str | None] = {}

    def problem(self, path: str) -> str | None:
        """Return the row error for images in ``path`` if it has another content by now, else None."""
        if path not in self._stated:
            return None
        if path not in self._problems:
            self._problems[path] = self._compare(path)
        return self._problems[path]

    def problem_since(self, path: str) -> str | None:
        """Return the row error if the file at ``path`` is another one than when it was compared."""
        if path not in self._stamps or self._problems[path] is not None:
            return self._problems.get(path)
        info = file_info(path, self._options)
        if info is None or raw_stamp(info) != self._stamps[path]:
            self._problems[path] = row_error("source_changed", f"{path} changed while it was read")
        return self._problems[path]

    def _compare(self, path: str) -> str | None:
        stated = self._stated[path]
        try:
            info = file_info(path, self._options)
            if info is None:
                return None  # fetching says so
            self._stamps[path] = stamp = raw_stamp(info)
            version = str(stated["version"])
            if info["size"] == stated["size"] and self._version(path, stamp, version) == version:
                return None
        except StorageError as error:
            if blames_no_file(error):
                raise
            return row_error("unreadable_source", str(error))
        return row_error("source_changed", f"{path} is not the raw shard that the rows were made from: it was replaced")

    def _version(self, path: str, stamp: str, stated: str) -> str:
        place = path, stamp, stated.partition(":")[0]
        if place in _known:
            return _known[place]
        version = content_version(path, stamp, self._options, like=stated)
        if is_local(path):  # another filesystem may tell no times, so that its stamps are all alike
            _known[place] = version
        return version


def _versions(schema: pa.Schema) -> dict[str, dict[str, int | str]]:
    text = (schema.metadata or {}).get(_KEY, b"{}")
    try:
        stated = json.loads(text).items()  # any JSON
        return {str(path): {"size": int(one["size"]), "version": str(one["version"])} for path, one in stated}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ShardError(f"the entry {_KEY.decode()} of the rows' schema is damaged: {error!r}") from error


def _with_versions(schema: pa.Schema, versions: dict[str, dict[str, int | str]]) -> pa.Schema:
    return schema.with_metadata({**(schema.metadata or {}), _KEY: json.dumps(versions, sort_keys=True).encode()})
