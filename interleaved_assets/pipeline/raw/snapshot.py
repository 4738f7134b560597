"""Comparison of listings of the raw root: the shards that are new, changed, still growing or gone since the last one.

The snapshot is one small Parquet file below the output root. Its times come from the clock of this machine, so that a
wrong clock of the storage does no harm: a shard counts as complete once two listings, at least ``quiet_seconds`` apart,
show the same stamp.
"""

import math
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from interleaved_assets.io.parquet.source import open_parquet
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.storage import check_name, exists, join
from interleaved_assets.model.errors import ShardError, StorageError, StorageUnavailable
from interleaved_assets.pipeline.raw.listing import RawShard, RawSource, raw_content_version
from interleaved_assets.settings import StorageSettings

_FILE: Final = "state/raw_shards.parquet"
_ID: Final = b"snapshot"
_AFTER: Final = b"after"
_SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("uri", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("stamp", pa.string(), nullable=False),
        pa.field("since", pa.float64(), nullable=False),
        pa.field("version", pa.string()),
        pa.field("handled", pa.string()),
        pa.field("handled_before", pa.string()),
    ]
)


class SnapshotEntry(NamedTuple):
    """One shard in a snapshot; size in bytes."""

    key: str
    uri: str
    size: int
    stamp: str
    since: float
    """Time at which the stamp was first listed, in seconds since 1970."""
    version: str | None = None
    """The version of the content with this stamp; None while the file may be growing."""
    handled: str | None = None
    """The content version that was last reported and, if the shard was due, requested."""

    @property
    def source(self) -> RawSource:
        """The shard with its content version, which must be known."""
        assert self.version is not None
        return RawSource(uri=self.uri, size=self.size, stamp=self.stamp, version=self.version)


Snapshot = Mapping[str, SnapshotEntry]
"""Entries by partition key."""


class SnapshotChanges(NamedTuple):
    """The new snapshot, and the shards whose version is not known yet."""

    growing: list[str]
    """New or changed shards that have not been unchanged for ``quiet_seconds`` yet."""
    left: list[str]
    """New or changed shards that are quiet, but left for the next snapshot: ``at_most`` or ``until`` was reached."""
    unreadable: dict[str, str]
    """Error message of each shard whose content or name could not be read."""
    snapshot: dict[str, SnapshotEntry]


def compare_with_snapshot(
    listing: Iterable[RawShard],
    before: Snapshot,
    storage: StorageSettings,
    *,
    now: float,
    quiet_seconds: float,
    at_most: int,
    until: float = math.inf,
    is_whole: bool = True,
) -> SnapshotChanges:
    """Compare a listing of the raw root with the snapshot ``before``.

    Args:
        now: seconds since 1970 by the caller's clock.
        quiet_seconds: seconds that a stamp must stay unchanged before its shard counts as complete; with 0 a shard is
            complete when it is first listed.
        at_most: number of shards whose version is determined; the others are left for the next snapshot.
        until: value of ``time.monotonic()`` after which no further shard is read; the others are left for the next
            snapshot. A local shard is read to hash it, so this limits the duration. One shard is always read.
        is_whole: whether every folder could be listed; else the entries of absent shards are kept.
    """
    found = SnapshotChanges([], [], {}, {})
    # after the clock was set back, ``since`` may be in the future: the shard would wait until then
    before = {key: entry._replace(since=min(entry.since, now)) for key, entry in before.items()}
    read = 0
    for shard in listing:
        try:
            check_name(shard.uri)
        except StorageError as error:
            # a Parquet string column cannot hold this name
            found.unreadable[shard.key] = str(error)
            continue
        known = before.get(shard.key)
        if known is None:
            entry = SnapshotEntry(shard.key, shard.uri, shard.size, shard.stamp, since=now)
        elif (known.uri, known.size, known.stamp) != (shard.uri, shard.size, shard.stamp):
            entry = SnapshotEntry(shard.key, shard.uri, shard.size, shard.stamp, since=now, handled=known.handled)
        else:
            entry = known
        if entry.version is None:
            if now - entry.since < quiet_seconds:
                found.growing.append(shard.key)
            elif read >= at_most or (read and time.monotonic() > until):
                found.left.append(shard.key)
            else:
                read += 1
                try:
                    entry = entry._replace(version=raw_content_version(shard, storage))
                except StorageError as error:
                    # the other shards are still compared; this one is tried again with the next snapshot
                    found.unreadable[shard.key] = str(error)
        found.snapshot[shard.key] = entry
    return found if is_whole else found._replace(snapshot={**before, **found.snapshot})


def read_snapshot(storage: StorageSettings, cursor: str | None) -> dict[str, SnapshotEntry]:
    """Return the entries that were in force when a tick ended with ``cursor``; empty if there is no snapshot.

    If ``cursor`` is the one before that of the file, the tick that wrote the file failed, and the contents that it
    marked as handled were not handled. If it is neither, the file or the cursor is from a backup: nothing counts as
    handled, and stamps count as first listed now, since a run that was requested may be lost with the other. Without a
    cursor, nothing counts as handled.

    Raises:
        StorageError: the file is damaged, or the storage refuses it.
    """
    table = _read(storage)
    if table is None:
        return {}
    metadata = table.schema.metadata or {}
    columns = table.to_pydict()
    handled: list[str | None] = [None] * table.num_rows
    if cursor and cursor.encode() == metadata.get(_ID):
        handled = columns["handled"]
    elif cursor and cursor.encode() == metadata.get(_AFTER):
        handled = columns["handled_before"]
    elif cursor:
        columns["since"] = [math.inf] * table.num_rows  # no time is later than the next comparison
    names = ("key", "uri", "size", "stamp", "since", "version")
    rows = zip(*(columns[name] for name in names), handled, strict=True)
    return {row[0]: SnapshotEntry(*row) for row in rows}


def is_of_backup(before: Snapshot) -> bool:
    """Return whether :func:`read_snapshot` found the snapshot or the cursor to be from a backup."""
    return any(entry.since == math.inf for entry in before.values())


def write_snapshot(snapshot: Snapshot, before: Snapshot, storage: StorageSettings, after: str | None) -> str:
    """Write ``snapshot``, a few dozen bytes per shard, in place of ``before``, and return its cursor.

    ``after`` is the cursor with which ``before`` was read.
    """
    cursor = uuid.uuid4().hex
    rows = sorted(snapshot.values())
    columns: dict[str, list[object]] = {name: [getattr(row, name) for row in rows] for name in SnapshotEntry._fields}
    columns["handled_before"] = [before[row.key].handled if row.key in before else None for row in rows]
    schema = _SCHEMA.with_metadata({_ID: cursor.encode(), _AFTER: (after or "").encode()})
    with parquet_shard(_uri(storage), schema, storage_options=storage.options) as out:
        out.write(pa.table(columns, schema=schema))
    return cursor


def snapshot_versions(raws: Iterable[RawShard], storage: StorageSettings) -> dict[str, str]:
    """Return, by key, the content versions of those ``raws`` that have the same stamp in the snapshot.

    With them, a file that has a new stamp and the same bytes is recognized as unchanged without reading it.
    """
    try:
        # the tick that wrote it may have failed: a stamp stands for the same content in any snapshot
        latest = read_snapshot(storage, None)
    except StorageUnavailable:
        raise
    except StorageError:
        return {}
    return {
        raw.key: known.version
        for raw in raws
        if (known := latest.get(raw.key))
        and known.version
        and (known.uri, known.size, known.stamp) == (raw.uri, raw.size, raw.stamp)
    }


def _read(storage: StorageSettings) -> pa.Table | None:
    uri = _uri(storage)
    if not exists(uri, storage.options):
        return None
    try:
        with open_parquet(uri, storage.options) as source:
            table = source.read(source.schema.names)
    except ShardError as error:
        raise StorageError(f"{uri} is not a snapshot of the raw shards: {error}") from error
    if not table.schema.equals(_SCHEMA):
        raise StorageError(f"{uri} is not a snapshot of the raw shards: it has the columns {table.column_names}")
    return table


def _uri(storage: StorageSettings) -> str:
    return join(storage.output_root, _FILE)
