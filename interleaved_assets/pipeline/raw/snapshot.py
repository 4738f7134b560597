"""Watching the raw root: which shards are new, changed, still growing or gone since the last look.

What was seen stands in a snapshot, a small Parquet file below the output root. Looks are compared by our own clock
alone, so that the clock of the storage may be wrong: a shard counts as complete once two looks, at least
``quiet_seconds`` apart, found it with the same stamp.
"""

import math
import time
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from interleaved_assets.io.parquet.source import open_parquet
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.storage import filesystem, join, storage_errors
from interleaved_assets.model.errors import ShardError, StorageError, StorageUnavailable
from interleaved_assets.pipeline.raw.listing import RawShard, RawSource, check_name, raw_content_version
from interleaved_assets.settings import StorageSettings

_SNAPSHOT_FOLDER: Final = "state/raw_shards"
"""Below the output root: snapshots, numbered in the order of the looks."""

_SNAPSHOT_SCHEMA: Final = pa.schema(
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
)


class Seen(NamedTuple):
    """One shard as of the last look."""

    key: str
    uri: str
    size: int
    stamp: str
    since: float
    """When the stamp was first seen, in seconds since 1970."""
    settled: bool
    """Whether the content under this stamp has been looked at."""
    reported: str | None
    """The version last reported."""
    gone: bool
    """Whether the shard has vanished."""


class Look(NamedTuple):
    """What a look at the raw root found."""

    changed: list[RawSource]
    """New or changed and complete, with their versions: to be reported."""
    keys: list[str]
    """Partition keys of ``changed``, in the same order."""
    growing: list[str]
    """Seen, but not yet quiet for long enough, or left for the next look."""
    vanished: list[str]
    """There at the last look, gone now."""
    unreadable: dict[str, str]
    """Shards whose content could not be read, with the reason."""
    snapshot: dict[str, Seen]


def look(
    listing: Iterable[RawShard],
    before: Mapping[str, Seen],
    storage: StorageSettings,
    *,
    now: float,
    quiet_seconds: float,
    at_most: int,
    until: float = math.inf,
) -> Look:
    """Compare a listing of the raw root with the snapshot of the look before.

    Args:
        now: seconds since 1970 by the caller's clock.
        quiet_seconds: how long a stamp must have stood unchanged before its shard counts as complete; 0 takes it at
        once.
        at_most: changed shards to report; the rest waits for the next look.
        until: value of ``time.monotonic()`` after which no further shard is read; the rest waits as well. A local shard
            is read to hash it, so this bounds how long a look takes. One shard is always read.
    """
    found = Look([], [], [], [], {}, {})
    read = 0
    for shard in listing:
        try:
            check_name(shard)
        except StorageError as error:
            # the snapshot could not hold it
            found.unreadable[shard.key] = str(error)
            continue
        known = before.get(shard.key)
        if known is None:
            seen = Seen(*shard, since=now, settled=False, reported=None, gone=False)
        elif known.gone or (known.uri, known.size, known.stamp) != (shard.uri, shard.size, shard.stamp):
            seen = Seen(*shard, since=now, settled=False, reported=known.reported, gone=False)
        else:
            # a clock that was set back must not keep a shard waiting until it has caught up
            seen = known._replace(since=min(known.since, now))
        if not seen.settled:
            out_of_time = read and time.monotonic() > until
            if now - seen.since < quiet_seconds or len(found.changed) >= at_most or out_of_time:
                found.growing.append(shard.key)
            else:
                read += 1
                try:
                    version = raw_content_version(shard, storage)
                except StorageError as error:
                    # one file that cannot be read must not keep the others waiting; it is tried again at the next look
                    found.unreadable[shard.key] = str(error)
                    found.snapshot[shard.key] = seen
                    continue
                if version != seen.reported:
                    found.keys.append(shard.key)
                    found.changed.append(RawSource(uri=shard.uri, size=shard.size, stamp=shard.stamp, version=version))
                seen = seen._replace(settled=True, reported=version)
        found.snapshot[shard.key] = seen
    for key, known in before.items():
        if key not in found.snapshot:
            if not known.gone:
                found.vanished.append(key)
            found.snapshot[key] = known._replace(gone=True)
    return found


def read_snapshot(uri: str, storage_options: Mapping[str, object]) -> dict[str, Seen]:
    """The snapshot at ``uri`` by key.

    Raises:
        StorageError: it is missing, unreadable or damaged.
    """
    try:
        with open_parquet(uri, storage_options) as source:
            table = source.read(source.schema.names)
    except ShardError as error:
        raise StorageError(f"{uri} is no snapshot of the raw shards: {error}") from error
    if not table.schema.equals(_SNAPSHOT_SCHEMA):
        raise StorageError(f"{uri} is no snapshot of the raw shards: it has the columns {table.column_names}")
    columns = table.to_pydict()
    return {row[0]: Seen(*row) for row in zip(*(columns[name] for name in Seen._fields), strict=True)}


def write_snapshot(snapshot: Mapping[str, Seen], uri: str, storage_options: Mapping[str, object]) -> None:
    """Write ``snapshot`` atomically, as Parquet of a few dozen bytes per shard."""
    rows = sorted(snapshot.values())
    columns = {name: [getattr(row, name) for row in rows] for name in Seen._fields}
    with parquet_shard(uri, _SNAPSHOT_SCHEMA, storage_options=storage_options, hashed=False) as out:
        out.write(pa.table(columns, schema=_SNAPSHOT_SCHEMA))


def versions_looked_at(raws: Iterable[RawShard], storage: StorageSettings) -> dict[str, str]:
    """By key, the versions of those ``raws`` whose content the last look has seen under the stamp that they still have.

    A file that was only touched, or written anew with the same bytes, is thus told from a changed one without reading
    it. Nothing where no look was taken yet, or its snapshot is damaged.

    Raises:
        StorageError: the snapshots cannot be listed.
        StorageUnavailable: the storage does not answer.
    """
    seen = latest_snapshot(storage)
    return {
        raw.key: known.reported
        for raw in raws
        if (known := seen.get(raw.key))
        and known.settled
        and known.reported
        and (known.uri, known.size, known.stamp) == (raw.uri, raw.size, raw.stamp)
    }


def latest_snapshot(storage: StorageSettings) -> dict[str, Seen]:
    """What the last look has seen, by key. Nothing where no look was taken yet, or its snapshot is damaged.

    Raises:
        StorageError: the snapshots cannot be listed.
        StorageUnavailable: the storage does not answer.
    """
    numbers = _numbers_below(_SNAPSHOT_FOLDER, storage)
    if not numbers:
        return {}
    # whichever look it was: a stamp stands for the same content at any time
    try:
        return read_snapshot(snapshot_uri(storage, max(numbers)), storage.options)
    except StorageUnavailable:
        raise
    except StorageError:
        return {}


def next_number(last: int, storage: StorageSettings, folder: str = _SNAPSHOT_FOLDER) -> int:
    """A number above ``last`` and above those of all numbered files below ``folder``.

    A cursor that was reset thus does not begin below a file of before, which would count as the latest.

    Raises:
        StorageError: the folder cannot be listed.
    """
    return max([last, *_numbers_below(folder, storage)]) + 1


def remove_snapshots_before(number: int, storage: StorageSettings, folder: str = _SNAPSHOT_FOLDER) -> None:
    """Remove the numbered files below ``folder``, snapshots or others, with smaller numbers.

    Raises:
        StorageError: one cannot be removed.
    """
    for older in (found for found in _numbers_below(folder, storage) if found < number):
        uri = join(storage.output_root, f"{folder}/{older}.parquet")
        with storage_errors(uri, "remove"):
            fs, path = filesystem(uri, storage.options)
            fs.rm_file(path)


def snapshot_uri(storage: StorageSettings, number: int) -> str:
    """Where the snapshot of the look with this number is."""
    return join(storage.output_root, f"{_SNAPSHOT_FOLDER}/{number}.parquet")


def _numbers_below(folder: str, storage: StorageSettings) -> list[int]:
    uri = join(storage.output_root, folder)
    with storage_errors(uri, "list the numbered files below"):
        fs, path = filesystem(uri, storage.options)
        fs.invalidate_cache(path)
        try:
            names = [name.rpartition("/")[2] for name in fs.ls(path, detail=False)]
        except FileNotFoundError:
            return []
    return [int(number) for name in names if (number := name.removesuffix(".parquet")).isdecimal()]
