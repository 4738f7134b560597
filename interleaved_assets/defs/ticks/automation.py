"""A tick of the automation sensor.

Like the nightly schedule it determines which shards are due (``pipeline/status.py``), but only for shards whose content
no tick has handled yet: the last snapshot of the raw root has the present versions, a table below the output root has
the versions handled.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Final

import dagster as dg
import pyarrow as pa

from interleaved_assets.defs.progress import known_progress
from interleaved_assets.defs.requests import gaps_of, ranges_of
from interleaved_assets.defs.steps.failures import failed_with_present_inputs
from interleaved_assets.defs.ticks.cursor import cursor_number
from interleaved_assets.defs.ticks.due_runs import log_due, range_requests
from interleaved_assets.model.errors import StorageError, StorageUnavailable
from interleaved_assets.pipeline.due import Due, Progress, due_shards
from interleaved_assets.pipeline.raw.listing import RawShard
from interleaved_assets.pipeline.raw.numbered_tables import NoTable, NumberedTables
from interleaved_assets.pipeline.raw.snapshot import SnapshotEntry, latest_snapshot
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.reporting.text import counted
from interleaved_assets.settings import Settings, StorageSettings

REQUESTED: Final = NumberedTables(
    "state/requested",
    pa.schema([pa.field("key", pa.string(), nullable=False), pa.field("version", pa.string(), nullable=False)]),
    kind="a table of requested shards",
)
"""The content version of each shard for which automation last requested a run."""


def launch_due_shards(context: dg.SensorEvaluationContext, settings: Settings) -> dg.SensorResult | dg.SkipReason:
    """Request runs for shards that ``raw_shard_sensor`` has reported as new or changed and that are due."""
    storage, stages = settings.storage, stage_dag(settings)
    last = cursor_number(context)
    try:
        seen = latest_snapshot(storage)
        table = _requested(context, last, storage) if last else {}
        # a shard that was gone is compared with its records again: its outputs may have been forgotten
        requested = {key: version for key, version in table.items() if key in seen and not seen[key].gone}
        # without shards that are gone, and files that changed since they were read, which may still be growing
        versions = {key: raw.reported for key, raw in seen.items() if raw.reported and raw.settled and not raw.gone}
        changed = {key for key, version in versions.items() if requested.get(key) != version}
        if not changed and requested == table:
            waiting = sum(not raw.settled and not raw.gone for raw in seen.values())
            more = f"; raw_shard_sensor waits until {counted(waiting, 'shard')} can be read" if waiting else ""
            return dg.SkipReason(f"no shard is new or changed{more}")
        registered, progress = known_progress(context, settings)
        until = time.monotonic() + settings.watch.max_tick_seconds
        due = due_shards(
            _raw_shards((key for key in registered if key in changed), seen),
            settings,
            versions,
            progress,
            at_most=settings.watch.max_per_tick,
            until=until,
        )
        failed = failed_with_present_inputs(context.instance, due.shards, stages, versions)
        wanted = due.shards.keys() - failed
        gaps = (key for key in gaps_of(registered, wanted) if key in versions.keys() - changed)
        # where time is up, the gaps that are not looked at are left out of the ranges
        between = due_shards(_raw_shards(gaps, seen), settings, versions, progress, until=until)
        current = due.current | between.current
    except StorageUnavailable as error:
        return dg.SkipReason(f"the storage did not answer, the next tick tries again: {error}")
    log_due(context, due._replace(shards={key: due.shards[key] for key in due.shards if key in wanted}))
    ranges = list(ranges_of(registered, wanted, current, settings.run.shards_per_run))
    if due.shards or due.current:
        skipped = f"current: {len(due.current)}, failed with their present content: {len(failed)}"
    else:
        skipped = _why_none_is_due(changed, changed - set(registered), due, progress)
        if requested == table:
            return dg.SkipReason(skipped)
    # The cursor names the table. If the tick fails after this line, the old cursor and its table stay in force, and
    # the next tick finds the same shards.
    requested |= {key: versions[key] for key in due.shards.keys() | due.current}
    number = REQUESTED.write({"key": list(requested), "version": list(requested.values())}, last, storage)
    return dg.SensorResult(
        # with the time: numbers begin again once the cursor is reset and the output root emptied, and Dagster
        # launches no run whose key was used before
        run_requests=range_requests(ranges, f"{number}.{time.time_ns()}", registered, due.shards, settings),
        cursor=str(number),
        skip_reason=None if ranges else skipped,
    )


def _why_none_is_due(changed: set[str], unregistered: set[str], due: Due, progress: Progress) -> str:
    if not changed:
        return "no shard is new or changed"
    parts = {
        "in runs": len(changed & progress.busy),
        "without a partition": len(unregistered),
        "whose records the storage refused": len(due.refused),
    }
    why = ", ".join(f"{count:,} {what}" for what, count in parts.items() if count)
    return f"{counted(len(changed), 'shard')} new or changed: {why}"


def _raw_shards(keys: Iterable[str], seen: Mapping[str, SnapshotEntry]) -> Iterable[RawShard]:
    return (RawShard(key, seen[key].uri, seen[key].size, seen[key].stamp) for key in keys)


def _requested(context: dg.SensorEvaluationContext, number: int, storage: StorageSettings) -> dict[str, str]:
    """The versions handled, from the table with this number; none where the table is gone or damaged.

    Then all shards are compared with their records again. Shards that are current launch nothing.
    """
    try:
        table = REQUESTED.read(number, storage)
    except StorageUnavailable:
        raise
    except NoTable as error:
        context.log.info(f"all shards are compared again: {error}")
        return {}
    except StorageError as error:
        context.log.warning(
            f"all shards are compared again, because the table of the last tick cannot be read: {error}"
        )
        return {}
    return dict(zip(table["key"].to_pylist(), table["version"].to_pylist(), strict=True))
