"""Request runs for the shards that are due, and log why they are."""

import hashlib
from collections.abc import Mapping, Sequence

import dagster as dg

from interleaved_assets.defs.requests import DUE_REASONS, DUE_SHARDS, DUE_STAGES, RANGE_END, RANGE_START, ranges_of
from interleaved_assets.pipeline.due import Due, stages_due
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status import in_short, status_lines
from interleaved_assets.settings import Settings


def range_requests(
    registered: Sequence[str], due: Due, settings: Settings, of_content: Mapping[str, str]
) -> list[dg.RunRequest]:
    """Request a run for each range of shards that are due, of the stages that are due in it.

    Tags of a run say how many of its shards are due, and why. Earlier stages, at which all of its shards are current,
    are left out: they would log events for each shard again.

    Args:
        registered: the keys of all partitions, in their order.
        due: the shards that are due, with their statuses, and those that are known to be current.
        of_content: a text for each due shard that stands for its present content. Dagster launches a run once for each
            range with these contents.
    """
    place = {key: index for index, key in enumerate(registered)}
    stages = stage_dag(settings)
    requests = []
    for first, last in ranges_of(registered, due.shards.keys(), due.current, settings.run.shards_per_run):
        keys = registered[place[first] : place[last] + 1]
        found = {key: due.shards[key] for key in keys if key in due.shards}
        wanted = stages_due(found.values(), stages)
        tags = {
            RANGE_START: first,
            RANGE_END: last,
            DUE_SHARDS: f"{len(found)} of {len(keys)} in the range",
            DUE_STAGES: ", ".join(wanted),
            DUE_REASONS: in_short(status_lines(found)),
        }
        contents = "\n".join([first, last, *(f"{key} {of_content.get(key, '')}" for key in found)])
        run_key = hashlib.sha256(contents.encode()).hexdigest()
        selected = [dg.AssetKey(name) for name in wanted]
        requests.append(dg.RunRequest(run_key=run_key, tags=tags, asset_selection=selected))
    return requests


def log_due(context: dg.SensorEvaluationContext | dg.ScheduleEvaluationContext, due: Due) -> None:
    """Log why shards are due, and which shards the storage refused."""
    for line in status_lines(due.shards)[:10]:
        context.log.info(f"{line.shards} shards: {line.status.text}")
    if due.refused:
        context.log.warning(f"{len(due.refused)} shards are left out: the storage refused their records")
