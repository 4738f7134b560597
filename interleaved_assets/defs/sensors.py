"""New and changed shards: a look at the raw root registers and observes them; automation conditions do the rest."""

import time
from collections.abc import Mapping

import dagster as dg

from interleaved_assets.defs.checks import RAW_ROOT_CHECK
from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.defs.registration import observation
from interleaved_assets.model.errors import StorageError, StorageUnavailable
from interleaved_assets.pipeline.raw.listing import list_raw_shards
from interleaved_assets.pipeline.raw.snapshot import (
    Seen,
    look,
    read_snapshot,
    remove_snapshots_before,
    snapshot_uri,
    write_snapshot,
)
from interleaved_assets.pipeline.record import RAW_SHARDS
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.reporting.text import counted
from interleaved_assets.settings import Settings, StorageSettings

_NAMED_IN_LOG = 10


def build_raw_shard_sensor(settings: Settings) -> dg.SensorDefinition:
    """The sensor over the raw root. It starts no runs itself: with automation conditions, shards would run twice."""

    @dg.sensor(
        name="raw_shard_sensor",
        description="Looks at the raw root, adds a partition for each new shard, and reports what is new or changed.",
        asset_selection=dg.AssetSelection.assets(RAW_SHARDS),
        minimum_interval_seconds=settings.watch.interval_seconds,
        default_status=_from_the_start(settings),
    )
    def raw_shard_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        storage = settings.storage
        # people may set the cursor in the UI, to anything
        last = int(context.cursor) if context.cursor and context.cursor.isdecimal() else 0
        try:
            before = _snapshot(context, last, storage) if last else {}
            found = look(
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
                f"{len(found.vanished)} raw shards have vanished; their outputs are left as they are: "
                f"{', '.join(found.vanished[:_NAMED_IN_LOG])}"
            )
        for key, reason in list(found.unreadable.items())[:_NAMED_IN_LOG]:
            context.log.warning(f"shard {key} is left for the next tick: {reason}")
        if found.snapshot == before:
            there = sum(not seen.gone for seen in before.values())
            return dg.SkipReason(f"{counted(there, 'shard')}, none new or changed")
        # The cursor names the snapshot. A tick that fails after this line leaves the old cursor in force, and with it
        # the old snapshot: what it would have reported is found again.
        write_snapshot(found.snapshot, snapshot_uri(storage, last + 1), storage.options)
        remove_snapshots_before(last, storage)
        # at once: partitions that a result asks for come after its events, and automation may look in between
        context.instance.add_dynamic_partitions(SHARDS, found.keys)
        return dg.SensorResult(
            asset_events=[observation(key, source) for key, source in zip(found.keys, found.changed, strict=True)],
            cursor=str(last + 1),
            skip_reason=None
            if found.keys
            else dg.SkipReason(f"not yet quiet: {len(found.growing)}, vanished: {len(found.vanished)}"),
        )

    return raw_shard_sensor


def build_automation_sensor(settings: Settings) -> dg.AutomationConditionSensorDefinition:
    """What launches the chain for shards that were observed to be new or changed, many of them in one backfill.

    It also has what goes by the clock: the report, and the check of the raw root.
    """
    return dg.AutomationConditionSensorDefinition(
        "automation",
        target=dg.AssetSelection.assets(*stage_dag(settings), "dataset_report").without_checks()
        | dg.AssetSelection.checks(RAW_ROOT_CHECK),
        minimum_interval_seconds=settings.watch.interval_seconds,
        default_status=_from_the_start(settings),
        use_user_code_server=True,  # the daemon alone does not know our condition
        description="Launches the chain for shards that raw_shard_sensor has reported as new or changed, and, by the "
        "clock, dataset_report and the check of the raw root.",
    )


def _snapshot(context: dg.SensorEvaluationContext, number: int, storage: StorageSettings) -> Mapping[str, Seen]:
    """What the look with this number saw; nothing where its snapshot is gone or damaged.

    All shards are then told of anew. Those with the version they had wake nothing.
    """
    try:
        return read_snapshot(snapshot_uri(storage, number), storage.options)
    except StorageUnavailable:
        raise
    except StorageError as error:
        context.log.warning(f"every shard is looked at anew, what the last look saw cannot be read: {error}")
        return {}


def _from_the_start(settings: Settings) -> dg.DefaultSensorStatus:
    return dg.DefaultSensorStatus.RUNNING if settings.watch.enabled else dg.DefaultSensorStatus.STOPPED
