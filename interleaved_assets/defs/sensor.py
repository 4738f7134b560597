"""The sensor, which registers new and changed shards, and requests their runs."""

import time
from typing import Final

import dagster as dg

from interleaved_assets.defs.metadata import DATA_VERSION
from interleaved_assets.defs.partitions import SHARDS, progress, shards
from interleaved_assets.defs.requests import AssetJob, log_due, range_requests
from interleaved_assets.model.errors import StorageError, StorageUnavailable
from interleaved_assets.pipeline.raw.listing import RawListing, RawShard, RawSource, list_raw_files
from interleaved_assets.pipeline.raw.snapshot import (
    Snapshot,
    SnapshotChanges,
    compare_with_snapshot,
    is_of_backup,
    read_snapshot,
    write_snapshot,
)
from interleaved_assets.pipeline.run.failures import read_failures
from interleaved_assets.pipeline.run.record import RAW_SHARDS
from interleaved_assets.pipeline.run.stored_records import recorded_stages
from interleaved_assets.pipeline.stages.dag import EVERY_STAGE, stage_dag
from interleaved_assets.pipeline.status.due import Due, KnownRuns, due_shards
from interleaved_assets.reporting.wording.text import counted
from interleaved_assets.settings import Settings, StorageSettings


def build_raw_shard_sensor(settings: Settings, job: AssetJob) -> dg.SensorDefinition:
    """Return the sensor that lists the raw root.

    A shard is requested once for each content, and only while no run works on it. A shard that failed with its present
    content is left to the nightly schedule.
    """

    @dg.sensor(
        name="raw_shard_sensor",
        job=job,
        description="Lists the raw root, adds a partition for each new shard, and requests a run for new and changed "
        "shards: once for each content, and not while a run works on the shard. Removes partitions that have neither a "
        "tar nor an output. A preview of its tick adds partitions too; runs are launched when the tick is committed.",
        minimum_interval_seconds=settings.watch.interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING if settings.watch.enabled else dg.DefaultSensorStatus.STOPPED,
    )
    def raw_shard_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        return report_raw_shards(context, settings)

    return raw_shard_sensor


_NAMED_IN_LOG: Final = 10


def report_raw_shards(context: dg.SensorEvaluationContext, settings: Settings) -> dg.SensorResult | dg.SkipReason:
    """Register new shards, report new and changed ones, and request runs for those that are due.

    A content is handled once: it is reported, and requested if it is due. The snapshot that the cursor names says which
    contents were handled. Dagster stores the cursor together with the requests, so a tick that fails in between is
    repeated. A shard on which a run works is left for a later tick: content that arrives during a run is not lost.
    """
    storage, watch = settings.storage, settings.watch
    until = time.monotonic() + watch.max_tick_seconds
    registered = list(context.instance.get_dynamic_partitions(SHARDS))
    try:
        before = _snapshot(context, storage)
        listing = list_raw_files(storage)
        found = compare_with_snapshot(
            listing.shards,
            before,
            storage,
            now=time.time(),
            quiet_seconds=watch.quiet_seconds,
            at_most=watch.max_per_tick,
            until=until,
            is_whole=not listing.unlisted,
        )
        absent = set[str]() if listing.unlisted else set(registered) - {shard.key for shard in listing.shards}
        unused = _unused(absent, context, settings)
        if is_of_backup(before):
            context.log.warning(
                "all shards are compared again, because this sensor did not write the last snapshot: outputs or "
                "instance came back from a backup, or another instance has its sensor on, which only one may have"
            )
            _leave_failed(found, listing, settings)
        complete = {key: entry for key, entry in found.snapshot.items() if entry.version}
        # registered at once, also in a preview of the tick: the UI would add partitions of the result in any order, and
        # the range of a requested run would miss some of them
        partitions = set(registered)
        added = [key for key in complete if key not in partitions]
        context.instance.add_dynamic_partitions(SHARDS, added)
        new = {key: entry for key, entry in complete.items() if entry.version != entry.handled}
        known = progress(context.instance, stage_dag(settings), [*registered, *added] if new else [])
        due = due_shards(
            (RawShard(key, entry.uri, entry.size, entry.stamp) for key, entry in new.items()),
            settings,
            {key: entry.source.version for key, entry in new.items()},
            known,
            at_most=watch.max_per_tick,
            until=until,
        )
    except StorageUnavailable as error:
        return dg.SkipReason(f"the storage did not answer, the next tick tries again: {error}")
    _log_problems(context, found, listing, sorted((before.keys() & absent) - unused))
    log_due(context, due)
    handled = {key: new[key] for key in new if key in due.shards or key in due.current}
    # a range may include these shards; if one of them is stale, it is only made before the nightly run
    made = set.intersection(*map(set, known.made.values())) if new else set()
    passable = {key for key in made if key in complete and key not in new} - known.busy
    requests = range_requests(
        [*registered, *added],
        due._replace(current=due.current | passable),
        settings,
        # the time of its first listing is added, since a content may come back after another one
        of_content={key: f"{entry.version} {entry.since}" for key, entry in handled.items()},
    )
    snapshot = {**found.snapshot, **{key: entry._replace(handled=entry.version) for key, entry in handled.items()}}
    removed = sorted(unused)[: watch.max_per_tick]  # removed one by one: SQLite takes up to 20 ms for each
    summary = _summary(found, known, due, len(added), len(absent - unused), len(removed), len(listing.ignored))
    if requests:
        context.log.info(summary)
    return dg.SensorResult(
        run_requests=requests,
        dynamic_partitions_requests=[shards.build_delete_request(removed)] if removed else [],
        asset_events=[observation(key, entry.source) for key, entry in handled.items()],
        cursor=context.cursor if snapshot == before else write_snapshot(snapshot, before, storage, context.cursor),
        skip_reason=None if requests else summary,
    )


def _leave_failed(found: SnapshotChanges, listing: RawListing, settings: Settings) -> None:
    """Mark contents that have failed as handled: two instances with one output root would request them at each tick."""
    raws = {shard.key: shard for shard in listing.shards}
    for failures in read_failures(settings.storage, EVERY_STAGE).values():
        for key in failures.keys() & raws.keys() & found.snapshot.keys():
            if failures[key].concerns(raws[key]):
                found.snapshot[key] = found.snapshot[key]._replace(handled=found.snapshot[key].version)


def _unused(absent: set[str], context: dg.SensorEvaluationContext, settings: Settings) -> set[str]:
    """Return the registered shards without a raw shard and without stored files, on which no run works.

    They are left over from another raw root, from shards that never completed a stage, and from forgotten shards.
    """
    unused = absent - recorded_stages(settings.storage, EVERY_STAGE).keys() if absent else set()
    return unused - progress(context.instance, stage_dag(settings), sorted(unused)).busy if unused else set()


def _log_problems(
    context: dg.SensorEvaluationContext, found: SnapshotChanges, listing: RawListing, vanished: list[str]
) -> None:
    for key, reason in list(found.unreadable.items())[:_NAMED_IN_LOG]:
        context.log.warning(f"shard {key} is left for the next tick: {reason}")
    for problem in list(listing.unlisted.values())[:_NAMED_IN_LOG]:
        context.log.warning(f"shards in this folder are not seen, and none counts as vanished: {problem}")
    if vanished:
        context.log.warning(
            f"{counted(len(vanished), 'raw shard')} vanished: {', '.join(vanished[:_NAMED_IN_LOG])}. The outputs are "
            "kept until interleaved forget --vanished --yes removes them"
        )


def _summary(
    found: SnapshotChanges,
    known: KnownRuns,
    due: Due,
    added: int,
    vanished: int,
    removed: int,
    ignored: int,
) -> str:
    """Describe the findings and actions of a tick, in numbers of shards; numbers that are 0 are left out."""
    new = {key for key, entry in found.snapshot.items() if entry.version and entry.version != entry.handled}
    waiting = {*found.growing, *found.left, *found.unreadable}
    busy = new & known.busy
    left = new - busy - due.shards.keys() - due.current - due.refused
    parts = {
        "waiting to be unchanged for watch.quiet_seconds": len(found.growing),
        "left for the next tick": len(found.left) + len(left),
        "registered": added,
        "requested": len(due.shards),
        "in the work of a run": len(busy),
        "current": len(due.current),
        "unchanged": len(found.snapshot.keys() - new - waiting),
        "not readable": len(found.unreadable) + len(due.refused),
        "vanished, their outputs are kept until interleaved forget": vanished,
        "without tar and outputs, removed": removed,
    }
    shown = [f"{count:,} {what}" for what, count in parts.items() if count] or ["no shards"]
    return ", ".join([*shown, *([f"{counted(ignored, 'file')} ignored"] if ignored else [])])


def _snapshot(context: dg.SensorEvaluationContext, storage: StorageSettings) -> Snapshot:
    """Return the snapshot that the cursor names; an empty one if it is damaged.

    With an empty snapshot all shards are compared again. Shards that are current launch nothing.
    """
    try:
        return read_snapshot(storage, context.cursor)
    except StorageUnavailable:
        raise
    except StorageError as error:
        context.log.warning(f"all shards are read again, because the last snapshot cannot be read: {error}")
        return {}


def observation(key: str, source: RawSource) -> dg.AssetObservation:
    """Return an observation of the raw shard ``key`` with its content version."""
    return dg.AssetObservation(
        RAW_SHARDS,
        partition=key,
        tags={DATA_VERSION: source.version},
        metadata={
            "dagster/uri": source.uri,
            "source": dg.MetadataValue.path(source.uri),
            "source_bytes": source.size,
            "source_version": source.version,
        },
    )
