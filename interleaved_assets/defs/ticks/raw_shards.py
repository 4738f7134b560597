"""A tick of raw_shard_sensor: what is new, changed or gone below the raw root since the last one."""

import time
from collections.abc import Mapping
from typing import Final

import dagster as dg

from interleaved_assets.defs.partitions import SHARDS, shards
from interleaved_assets.defs.progress import progress_of
from interleaved_assets.defs.registration import observation
from interleaved_assets.defs.ticks.cursor import cursor_number
from interleaved_assets.model.errors import StorageError, StorageUnavailable
from interleaved_assets.pipeline.raw.listing import list_raw_files
from interleaved_assets.pipeline.raw.numbered_tables import NoTable
from interleaved_assets.pipeline.raw.snapshot import (
    SnapshotChanges,
    SnapshotEntry,
    compare_with_snapshot,
    read_snapshot,
    write_snapshot,
)
from interleaved_assets.pipeline.stages.names import EVERY_STAGE
from interleaved_assets.pipeline.stored_records import recorded_stages
from interleaved_assets.reporting.text import counted
from interleaved_assets.settings import Settings, StorageSettings

_NAMED_IN_LOG: Final = 10


def report_raw_shards(context: dg.SensorEvaluationContext, settings: Settings) -> dg.SensorResult | dg.SkipReason:
    """Register new shards, and report new and changed ones."""
    storage = settings.storage
    last = cursor_number(context)
    registered = set(context.instance.get_dynamic_partitions(SHARDS))
    try:
        before = _snapshot(context, last, storage) if last else {}
        listing = list_raw_files(storage)
        found = compare_with_snapshot(
            (shard for shard, _ in listing.files),
            before,
            storage,
            now=time.time(),
            quiet_seconds=settings.watch.quiet_seconds,
            at_most=settings.watch.max_per_tick,
            until=time.monotonic() + settings.watch.max_tick_seconds,
            may_be_hidden=listing.may_hide,
        )
        missing = registered - {shard.key for shard, _ in listing.files}
        absent = {key for key in missing if not listing.may_hide(key)}
        unused = _unused(absent, context, settings)
    except StorageUnavailable as error:
        return dg.SkipReason(f"the storage did not answer, the next tick tries again: {error}")
    for key, reason in list(found.unreadable.items())[:_NAMED_IN_LOG]:
        context.log.warning(f"shard {key} is left for the next tick: {reason}")
    for problem in list(listing.unlisted.values())[:_NAMED_IN_LOG]:
        context.log.warning(f"shards in this folder are not seen, and do not count as vanished: {problem}")
    # a shard that is gone and has no partition was forgotten: should its tar come back, it counts as new
    kept = absent - unused
    if vanished := [key for key in found.vanished if key in kept]:
        context.log.warning(
            f"{len(vanished)} raw shards have vanished; their outputs are kept until interleaved forget removes them: "
            f"{', '.join(vanished[:_NAMED_IN_LOG])}"
        )
    snapshot = {key: entry for key, entry in found.snapshot.items() if not entry.gone or key in kept}
    # also those whose partition was deleted in the UI
    added = [key for key, entry in snapshot.items() if entry.settled and not entry.gone and key not in registered]
    number = last
    if snapshot != before:
        # The cursor names the snapshot. If the tick fails after this line, the old cursor and its snapshot stay in
        # force, and the next tick reports the same shards.
        number = write_snapshot(snapshot, last, storage)
    removed = sorted(unused)[: settings.watch.max_per_tick]  # one by one: SQLite takes up to 20 ms for each
    # here and not in the result: Dagster adds the partitions of a result only after it has stored its events
    context.instance.add_dynamic_partitions(SHARDS, added)
    return dg.SensorResult(
        dynamic_partitions_requests=[shards.build_delete_request(removed)] if removed else [],
        asset_events=[observation(key, source) for key, source in zip(found.keys, found.changed, strict=True)],
        cursor=str(number) if number else None,
        skip_reason=_summary(
            found, before, set(added), len(kept), len(removed), len(unused) - len(removed), len(listing.ignored)
        ),
    )


def _unused(absent: set[str], context: dg.SensorEvaluationContext, settings: Settings) -> set[str]:
    """Those of the registered shards without a raw tar of which nothing is stored, and on which no run works.

    They are left over from another raw root, from shards that never came through, and from forgotten shards.
    """
    unused = absent - recorded_stages(settings.storage, EVERY_STAGE).keys() if absent else set()
    return unused - progress_of(sorted(unused), context, settings).busy if unused else set()


def _summary(
    found: SnapshotChanges,
    before: Mapping[str, SnapshotEntry],
    added: set[str],
    vanished: int,
    removed: int,
    left: int,
    ignored: int,
) -> str:
    """What a tick found and did, in numbers of shards; what there is none of is left out."""
    there = {key for key, entry in found.snapshot.items() if not entry.gone}
    reported = set(found.keys) - added
    changed = {key for key in reported if key in before and before[key].reported}
    waiting = {*found.growing, *found.left, *found.unreadable}
    parts = {
        "waiting to be quiet": len(found.growing),
        "left for the next tick": len(found.left) + left,
        "registered": len(added),
        "changed": len(changed),
        "registered before": len(reported - changed),
        "unchanged": len(there - added - reported - waiting),
        "not readable": len(found.unreadable),
        "vanished, their outputs are kept until interleaved forget": vanished,
        "without tar and outputs, removed": removed,
    }
    shown = [f"{count:,} {what}" for what, count in parts.items() if count] or ["no shards"]
    return ", ".join([*shown, *([f"{counted(ignored, 'file')} ignored"] if ignored else [])])


def _snapshot(
    context: dg.SensorEvaluationContext, number: int, storage: StorageSettings
) -> Mapping[str, SnapshotEntry]:
    """The snapshot with this number; empty where it is gone, as after a change of the output root, or damaged.

    Then all shards are reported again. Shards with the same version as before launch nothing.
    """
    try:
        return read_snapshot(number, storage)
    except StorageUnavailable:
        raise
    except NoTable as error:
        context.log.info(f"all shards are read again: {error}")
        return {}
    except StorageError as error:
        context.log.warning(f"all shards are read again, because the last snapshot cannot be read: {error}")
        return {}
