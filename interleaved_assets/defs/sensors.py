"""The sensor of the raw root: it registers and observes new and changed shards, and launches nothing."""

import time
from collections.abc import Mapping

import dagster as dg

from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.defs.registration import observation
from interleaved_assets.model.errors import StorageError, StorageUnavailable
from interleaved_assets.pipeline.raw.listing import list_raw_shards
from interleaved_assets.pipeline.raw.snapshot import (
    SnapshotEntry,
    compare_with_snapshot,
    next_number,
    read_snapshot,
    remove_snapshots_before,
    snapshot_uri,
    write_snapshot,
)
from interleaved_assets.pipeline.record import RAW_SHARDS
from interleaved_assets.reporting.text import counted
from interleaved_assets.settings import Settings, StorageSettings

_NAMED_IN_LOG = 10


def build_raw_shard_sensor(settings: Settings) -> dg.SensorDefinition:
    """The sensor that lists the raw root; ``automation`` launches runs for the shards that it reports."""

    @dg.sensor(
        name="raw_shard_sensor",
        description="Lists the raw root, adds a partition for each new shard, and reports new and changed shards. "
        "It launches nothing.",
        asset_selection=dg.AssetSelection.assets(RAW_SHARDS),
        minimum_interval_seconds=settings.watch.interval_seconds,
        default_status=from_the_start(settings),
    )
    def raw_shard_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        storage = settings.storage
        last = cursor_number(context)
        try:
            before = _snapshot(context, last, storage) if last else {}
            found = compare_with_snapshot(
                list_raw_shards(storage),
                before,
                storage,
                now=time.time(),
                quiet_seconds=settings.watch.quiet_seconds,
                at_most=settings.watch.max_per_tick,
                until=time.monotonic() + settings.watch.max_tick_seconds,
            )
        except StorageUnavailable as error:
            return dg.SkipReason(f"the storage did not answer, the next tick tries again: {error}")
        if found.vanished:
            context.log.warning(
                f"{len(found.vanished)} raw shards have vanished; their outputs are kept: "
                f"{', '.join(found.vanished[:_NAMED_IN_LOG])}"
            )
        for key, reason in list(found.unreadable.items())[:_NAMED_IN_LOG]:
            context.log.warning(f"shard {key} is left for the next tick: {reason}")
        if found.snapshot == before:
            there = sum(not seen.gone for seen in before.values())
            return dg.SkipReason(f"{counted(there, 'shard')}, none new or changed")
        # The cursor names the snapshot. If the tick fails after this line, the old cursor and its snapshot stay in
        # force, and the next tick reports the same shards.
        number = next_number(last, storage)
        write_snapshot(found.snapshot, snapshot_uri(storage, number), storage.options)
        remove_snapshots_before(last, storage)
        # here and not in the result: Dagster adds the partitions of a result only after it has stored its events
        context.instance.add_dynamic_partitions(SHARDS, found.keys)
        return dg.SensorResult(
            asset_events=[observation(key, source) for key, source in zip(found.keys, found.changed, strict=True)],
            cursor=str(number),
            skip_reason=None
            if found.keys
            else dg.SkipReason(f"still changing: {len(found.growing)}, vanished: {len(found.vanished)}"),
        )

    return raw_shard_sensor


def _snapshot(
    context: dg.SensorEvaluationContext, number: int, storage: StorageSettings
) -> Mapping[str, SnapshotEntry]:
    """The snapshot with this number; empty where it is gone or damaged.

    Then all shards are reported again. Shards with the same version as before launch nothing.
    """
    try:
        return read_snapshot(snapshot_uri(storage, number), storage.options)
    except StorageUnavailable:
        raise
    except StorageError as error:
        context.log.warning(f"all shards are read again, because the last snapshot cannot be read: {error}")
        return {}


def cursor_number(context: dg.SensorEvaluationContext) -> int:
    """The number in the sensor's cursor; 0 where it has none, or where the cursor was set to another text in the UI."""
    return int(context.cursor) if context.cursor and context.cursor.isdecimal() else 0


def from_the_start(settings: Settings) -> dg.DefaultSensorStatus:
    """The status of a sensor until it is turned on or off in the UI."""
    return dg.DefaultSensorStatus.RUNNING if settings.watch.enabled else dg.DefaultSensorStatus.STOPPED
