"""The nightly run: whatever is missing, failed or stale, found by comparing recorded versions with the present ones."""

from collections.abc import Iterator, Mapping, Sequence

import dagster as dg
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.errors import DagsterDefinitionChangedDeserializationError
from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus

from interleaved_assets.defs.partitions import SHARDS, failed_shards
from interleaved_assets.model.errors import SettingsError
from interleaved_assets.pipeline.raw.listing import just_written, list_raw_shards
from interleaved_assets.pipeline.raw.snapshot import versions_looked_at
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status import CURRENT, shard_statuses
from interleaved_assets.settings import Settings

# Dagster's own names for a run over a range of partitions.
RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
ONE = "dagster/partition"
BRING_UP_TO_DATE = "bring_up_to_date"
UNRECORDED = "not recorded in Dagster"
FAILED = "failed in Dagster"
UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def build_nightly_schedule(settings: Settings) -> dg.ScheduleDefinition:
    """A schedule over the whole chain, off until somebody turns it on in the UI.

    Dagster's own staleness over all partitions takes minutes at ten thousand shards; the records answer in seconds, and
    know of changed settings and code as well.
    """
    job = dg.define_asset_job(
        BRING_UP_TO_DATE,
        selection=dg.AssetSelection.assets(*stage_dag(settings)),
        description="The chain over a range of shards; those that are current are left alone.",
    )

    def nightly(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest] | dg.SkipReason:
        # what is still being written is not complete; the next night, or the sensor, will see it
        raws = [raw for raw in list_raw_shards(settings.storage) if not just_written(raw, settings.watch.quiet_seconds)]
        found = dict(shard_statuses(raws, settings, versions_looked_at(raws, settings.storage)))
        statuses = {key: status for key, status in found.items() if status is not None}
        if len(statuses) < len(found):
            context.log.warning(f"{len(found) - len(statuses)} shards are left out: the storage refused their records")
        # a shard that the sensor has not told of yet is missing like any other
        context.instance.add_dynamic_partitions(SHARDS, list(statuses))
        registered = context.instance.get_dynamic_partitions(SHARDS)
        for key in _unknown_to_dagster(context.instance, settings) & statuses.keys():
            statuses[key] = UNRECORDED
        # also those whose records are current: one run made the shard, a later one failed before it could look
        failed = failed_shards(context.instance, stage_dag(settings), registered)
        for key in set().union(*failed.values()) & statuses.keys():
            statuses[key] = FAILED
        assert context.repository_def is not None  # the daemon gives it
        graph = context.repository_def.asset_graph
        for key in _in_flight(context.instance, registered) | _awaited(context.instance, graph):
            statuses.pop(key, None)
        ranges = list(ranges_of(registered, statuses, settings.run.shards_per_run))
        if not ranges:
            return dg.SkipReason(f"all {len(registered)} shards are current, or runs are working on them")
        return (
            dg.RunRequest(
                run_key=f"{context.scheduled_execution_time:%Y-%m-%dT%H:%M}:{first}",
                tags={RANGE_START: first, RANGE_END: last},
            )
            for first, last in ranges
        )

    try:
        return dg.schedule(
            name="nightly",
            job=job,
            cron_schedule=settings.watch.nightly,
            execution_timezone="UTC",
            default_status=dg.DefaultScheduleStatus.STOPPED,
            description="Requests runs for what is missing, failed or stale, changed settings and code included.",
        )(nightly)
    except dg.DagsterInvalidDefinitionError as error:
        raise SettingsError(
            f"watch.nightly: {settings.watch.nightly!r} is no cron expression of five fields, such as 0 2 * * *"
        ) from error


def _unknown_to_dagster(instance: dg.DagsterInstance, settings: Settings) -> set[str]:
    """Shards that some asset of the chain has no materialization of: a run may end between record and event."""
    registered = set(instance.get_dynamic_partitions(SHARDS))
    known = [instance.get_materialized_partitions(dg.AssetKey(name)) for name in stage_dag(settings)]
    return {key for key in registered if not all(key in keys for keys in known)}


def _in_flight(instance: dg.DagsterInstance, registered: Sequence[str]) -> set[str]:
    """Shards of runs that are queued or under way: another run on them would do their work twice."""
    places = {key: place for place, key in enumerate(registered)}
    found: set[str] = set()
    for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)):
        first, last = run.tags.get(RANGE_START), run.tags.get(RANGE_END)
        if first in places and last in places:
            found.update(registered[places[first] : places[last] + 1])
        elif key := run.tags.get(ONE):
            found.add(key)
    return found


def _awaited(instance: dg.DagsterInstance, graph: BaseAssetGraph) -> set[str]:
    """Shards that a backfill has yet to put into a run; it queues its runs one after another, which takes minutes."""
    found: set[str] = set()
    for backfill in instance.get_backfills(filters=BulkActionsFilter(statuses=[BulkActionStatus.REQUESTED])):
        if not backfill.is_asset_backfill:
            found.update(backfill.partition_names or ())
            continue
        try:
            data = backfill.get_asset_backfill_data(graph)
        except DagsterDefinitionChangedDeserializationError:
            continue  # it is about assets that are no longer there, and ends as failed
        left = data.target_subset - data.materialized_subset - data.failed_and_downstream_subset
        found.update(item.partition_key for item in left.iterate_asset_partitions() if item.partition_key is not None)
    return found


def ranges_of(registered: Sequence[str], statuses: Mapping[str, str], at_most: int) -> Iterator[tuple[str, str]]:
    """First and last key of ranges of ``registered``, at most ``at_most`` keys each, that hold every shard not current.

    Current shards may lie inside a range: they cost a look at their records. Shards that have vanished may not, since
    they would fail; ``statuses`` lacks them.
    """
    open_range: tuple[int, int] | None = None
    for index, key in enumerate(registered):
        if open_range and (key not in statuses or index - open_range[0] == at_most):
            yield registered[open_range[0]], registered[open_range[1]]
            open_range = None
        if statuses.get(key, CURRENT) != CURRENT:
            open_range = (open_range[0] if open_range else index, index)
    if open_range:
        yield registered[open_range[0]], registered[open_range[1]]
