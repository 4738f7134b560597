"""The nightly run: whatever is missing, failed or stale, found by comparing recorded versions with the present ones."""

from collections.abc import Iterator, Mapping, Sequence

import dagster as dg

from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.pipeline.chain import chain
from interleaved_assets.pipeline.raw import list_raw_shards
from interleaved_assets.pipeline.staleness import CURRENT, shard_statuses
from interleaved_assets.settings import Settings

# Dagster's own names for a run over a range of partitions.
RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"


def build_nightly_schedule(settings: Settings) -> dg.ScheduleDefinition:
    """A schedule over the whole chain, off until somebody turns it on in the UI.

    Dagster's own staleness over all partitions takes minutes at ten thousand shards; the records answer in seconds, and
    know of changed settings and code as well.
    """
    job = dg.define_asset_job(
        "bring_up_to_date",
        selection=dg.AssetSelection.assets(*chain(settings)),
        description="The chain over a range of shards; those that are current are left alone.",
    )

    @dg.schedule(
        name="nightly",
        job=job,
        cron_schedule=settings.watch.nightly,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Requests runs for every shard that is missing, failed or stale, by changed settings and code too.",
    )
    def nightly(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest] | dg.SkipReason:
        statuses = dict(shard_statuses(list_raw_shards(settings.storage), settings))
        # a shard that the sensor has not told of yet is missing like any other
        context.instance.add_dynamic_partitions(SHARDS, list(statuses))
        registered = context.instance.get_dynamic_partitions(SHARDS)
        ranges = list(ranges_of(registered, statuses, settings.run.shards_per_run))
        if not ranges:
            return dg.SkipReason(f"all {len(registered)} shards are current")
        return (
            dg.RunRequest(
                run_key=f"{context.scheduled_execution_time:%Y-%m-%dT%H:%M}:{first}",
                tags={RANGE_START: first, RANGE_END: last},
            )
            for first, last in ranges
        )

    return nightly


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
