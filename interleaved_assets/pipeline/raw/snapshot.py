"""Snapshots of the raw root: which shards are new, changed, still growing or gone since the last snapshot.

A snapshot is a small Parquet file below the output root. Times in it are of our own clock, so that a wrong clock of the
storage does no harm: a shard counts as complete once two listings, at least ``quiet_seconds`` apart, show the same
stamp.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from interleaved_assets.io.storage import check_name
from interleaved_assets.model.errors import StorageError, StorageUnavailable
from interleaved_assets.pipeline.raw.listing import RawShard, RawSource, raw_content_version
from interleaved_assets.pipeline.raw.numbered_tables import NumberedTables
from interleaved_assets.settings import StorageSettings

SNAPSHOTS: Final = NumberedTables(
    "state/raw_shards",
    pa.schema(
        [
            pa.field("key", pa.string(), nullable=False),
            pa.field("uri", pa.string(), nullable=False),
            pa.field("size", pa.int64(), nullable=False),
            pa.field("stamp", pa.string(), nullable=False),
            pa.field("since", pa.float64(), nullable=False),
            pa.field("settled", pa.bool_(), nullable=False),
            pa.field("reported", pa.string()),
            pa.field("gone", pa.bool_(), nullable=False),
        ]
    ),
    kind="a snapshot of the raw shards",
)


class SnapshotEntry(NamedTuple):
    """One shard in a snapshot; size in bytes."""

    key: str
    uri: str
    size: int
    stamp: str
    since: float
    """Time at which the stamp was first listed, in seconds since 1970."""
    settled: bool
    """Whether the version of the content with this stamp has been determined."""
    reported: str | None
    """The content version that was reported last."""
    gone: bool
    """Whether the shard was missing from the listing."""


class SnapshotChanges(NamedTuple):
    """The differences between a listing of the raw root and the snapshot before, and the new snapshot."""

    changed: list[RawSource]
    """New or changed shards that are complete, with their content versions: to be reported."""
    keys: list[str]
    """Partition keys of ``changed``, in the same order."""
    growing: list[str]
    """New or changed, but not yet unchanged for ``quiet_seconds``."""
    left: list[str]
    """New or changed and quiet, but left for the next snapshot: ``at_most`` or ``until`` was reached."""
    vanished: list[str]
    """Shards of the snapshot before that are gone now."""
    unreadable: dict[str, str]
    """Error message of each shard whose content or name could not be read."""
    snapshot: dict[str, SnapshotEntry]


def compare_with_snapshot(
    listing: Iterable[RawShard],
    before: Mapping[str, SnapshotEntry],
    storage: StorageSettings,
    *,
    now: float,
    quiet_seconds: float,
    at_most: int,
    until: float = math.inf,
    may_be_hidden: Callable[[str], bool] = lambda _: False,
) -> SnapshotChanges:
    """Compare a listing of the raw root with the snapshot ``before``.

    Args:
        now: seconds since 1970 by the caller's clock.
        quiet_seconds: seconds that a stamp must stay unchanged before its shard counts as complete; with 0 a shard is
            complete when it is first listed.
        at_most: number of changed shards to report; the others are left for the next snapshot.
        until: value of ``time.monotonic()`` after which no further shard is read; the others are left for the next
            snapshot. A local shard is read to hash it, so this limits the duration. One shard is always read.
        may_be_hidden: whether the shard with a key may be in a folder that cannot be listed. Its entry is kept then.
    """
    found = SnapshotChanges([], [], [], [], [], {}, {})
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
            entry = SnapshotEntry(*shard, since=now, settled=False, reported=None, gone=False)
        elif known.gone or (known.uri, known.size, known.stamp) != (shard.uri, shard.size, shard.stamp):
            entry = SnapshotEntry(*shard, since=now, settled=False, reported=known.reported, gone=False)
        else:
            # after the clock was set back, ``since`` may be in the future: the shard would wait until then
            entry = known._replace(since=min(known.since, now))
        if not entry.settled:
            out_of_time = read and time.monotonic() > until
            if now - entry.since < quiet_seconds:
                found.growing.append(shard.key)
            elif len(found.changed) >= at_most or out_of_time:
                found.left.append(shard.key)
            else:
                read += 1
                try:
                    version = raw_content_version(shard, storage)
                except StorageError as error:
                    # the other shards are still compared; this one is tried again with the next snapshot
                    found.unreadable[shard.key] = str(error)
                    found.snapshot[shard.key] = entry
                    continue
                if version != entry.reported:
                    found.keys.append(shard.key)
                    found.changed.append(RawSource(uri=shard.uri, size=shard.size, stamp=shard.stamp, version=version))
                entry = entry._replace(settled=True, reported=version)
        found.snapshot[shard.key] = entry
    for key, known in before.items():
        if key not in found.snapshot and may_be_hidden(key):
            found.snapshot[key] = known
        elif key not in found.snapshot:
            if not known.gone:
                found.vanished.append(key)
            found.snapshot[key] = known._replace(gone=True)
    return found


def read_snapshot(number: int, storage: StorageSettings) -> dict[str, SnapshotEntry]:
    """The snapshot with this number, by key."""
    columns = SNAPSHOTS.read(number, storage).to_pydict()
    return {row[0]: SnapshotEntry(*row) for row in zip(*(columns[name] for name in SnapshotEntry._fields), strict=True)}


def write_snapshot(snapshot: Mapping[str, SnapshotEntry], last: int, storage: StorageSettings) -> int:
    """Write ``snapshot``, a few dozen bytes per shard, as the one after number ``last``; returns its number."""
    rows = sorted(snapshot.values())
    columns = {name: [getattr(row, name) for row in rows] for name in SnapshotEntry._fields}
    return SNAPSHOTS.write(columns, last, storage)


def snapshot_versions(raws: Iterable[RawShard], storage: StorageSettings) -> dict[str, str]:
    """By key, the content versions of those ``raws`` that have the same stamp in the latest snapshot.

    With them, a file that has a new stamp and the same bytes is recognized as unchanged without reading it.
    """
    latest = latest_snapshot(storage)
    return {
        raw.key: known.reported
        for raw in raws
        if (known := latest.get(raw.key))
        and known.settled
        and known.reported
        and (known.uri, known.size, known.stamp) == (raw.uri, raw.size, raw.stamp)
    }


def latest_snapshot(storage: StorageSettings) -> dict[str, SnapshotEntry]:
    """The entries of the latest snapshot, by key. Empty if there is no snapshot yet, or the latest one is damaged."""
    numbers = SNAPSHOTS.numbers(storage)
    if not numbers:
        return {}
    # the snapshot may be of a tick that failed: a stamp stands for the same content in any snapshot
    try:
        return read_snapshot(max(numbers), storage)
    except StorageUnavailable:
        raise
    except StorageError:
        return {}
