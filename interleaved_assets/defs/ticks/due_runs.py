"""Runs for the shards that are due: the requests for them, and why, in the log of the tick."""

from collections.abc import Iterable, Mapping, Sequence

import dagster as dg

from interleaved_assets.defs.requests import DUE_REASONS, DUE_SHARDS, DUE_STAGES, RANGE_END, RANGE_START
from interleaved_assets.pipeline.due import Due, stages_due
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status import Status, in_short, status_lines
from interleaved_assets.settings import Settings


def range_requests(
    ranges: Iterable[tuple[str, str]],
    tick: str,
    registered: Sequence[str],
    due: Mapping[str, Status],
    settings: Settings,
) -> list[dg.RunRequest]:
    """A request for each range, of the stages that are due in it, with tags that say how many shards are due, and why.

    Earlier stages, at which all of its shards are current, are left out: they would log events for each shard again.

    Args:
        ranges: first and last key of each.
        tick: names the tick that requests them.
        registered: the keys of all shards, in their order.
        due: the shards that are due, with their statuses.
    """
    place = {key: index for index, key in enumerate(registered)}
    stages = stage_dag(settings)
    requests = []
    for first, last in ranges:
        keys = registered[place[first] : place[last] + 1]
        found = {key: due[key] for key in keys if key in due}
        wanted = stages_due(found.values(), stages)
        tags = {
            RANGE_START: first,
            RANGE_END: last,
            DUE_SHARDS: f"{len(found)} of {len(keys)} in the range",
            DUE_STAGES: ", ".join(wanted),
            DUE_REASONS: in_short(status_lines(found)),
        }
        selected = [dg.AssetKey(name) for name in wanted]
        requests.append(dg.RunRequest(run_key=f"{tick}:{first}", tags=tags, asset_selection=selected))
    return requests


def log_due(context: dg.SensorEvaluationContext | dg.ScheduleEvaluationContext, due: Due) -> None:
    """Log why shards are due, and which shards the storage refused."""
    for line in status_lines(due.shards)[:10]:
        context.log.info(f"{line.shards} shards: {line.status.text}")
    if due.refused:
        context.log.warning(f"{len(due.refused)} shards are left out: the storage refused their records")
