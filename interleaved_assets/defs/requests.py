"""Requests for runs: the job over a range of shards, its tags, and the ranges with the shards that are due."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import dagster as dg

from interleaved_assets.pipeline.run.check import MATERIALIZATION_ERRORS, UP_TO_DATE
from interleaved_assets.pipeline.run.stage import Stage
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status.due import Due, stages_due
from interleaved_assets.pipeline.status.status import in_short, status_lines
from interleaved_assets.settings import Settings

# Dagster's documented tags of a run over a range of partitions.
RANGE_START: Final = "dagster/asset_partition_range_start"
RANGE_END: Final = "dagster/asset_partition_range_end"
# Tags with the purpose of a requested run: in the preview of a tick, and on the run.
DUE_SHARDS: Final = "interleaved/shards_due"
DUE_STAGES: Final = "interleaved/stages"
DUE_REASONS: Final = "interleaved/reasons"
BRING_UP_TO_DATE: Final = "bring_up_to_date"
LARGEST_GAP: Final = 40
"""Most consecutive current shards that a range may include. A further run takes 5.8 s, a current shard 0.014 to 0.15 s.
A gap of this length costs no more than the run that it saves."""

# the type of dg.define_asset_job, which has no public name
AssetJob = Any


def build_job(settings: Settings) -> AssetJob:
    """Return the job that takes a range of shards through all stages; the sensor and the nightly schedule launch it."""
    return dg.define_asset_job(
        BRING_UP_TO_DATE,
        selection=dg.AssetSelection.assets(*stage_dag(settings)),
        description="Takes a range of shards through all stages, for the sensor and the nightly schedule. To load "
        "shards by hand, use Materialize all on the Lineage page: a backfill of this job counts all shards of a run as "
        "failed where one of them fails.",
    )


def ranges_of(
    registered: Sequence[str],
    due: AbstractSet[str],
    current: AbstractSet[str],
    at_most: int,
    largest_gap: int = LARGEST_GAP,
) -> Iterator[tuple[str, str]]:
    """Yield first and last key of ranges of ``registered`` that hold every shard of ``due``.

    A range has at most ``at_most`` keys. It includes up to ``largest_gap`` consecutive shards of ``current`` between
    two that are due: reading their records costs less than another run. It includes no other shards: vanished
    ones would fail, and two runs would work on busy ones.
    """
    first = last = None
    for index, key in enumerate(registered):
        if first is not None and last is not None:
            full = index - first == at_most
            if full or (key not in due and (key not in current or index - last > largest_gap)):
                yield registered[first], registered[last]
                first = last = None
        if key in due:
            first = index if first is None else first
            last = index
    if first is not None and last is not None:
        yield registered[first], registered[last]


def range_requests(
    registered: Sequence[str], due: Due, settings: Settings, of_content: Mapping[str, str]
) -> list[dg.RunRequest]:
    """Request a run for each range of shards that are due, of the stages that are due in it.

    Tags of a run say how many of its shards are due, and why. Earlier stages, at which all of its shards are current,
    are left out, because they would log events for each shard again.

    Args:
        registered: the keys of all partitions, in their order.
        due: the shards that are due, with their statuses, and those that are known to be current.
        of_content: for each due shard, a text that identifies its present content. Dagster launches a run once for each
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
        requests.append(
            dg.RunRequest(
                run_key=run_key,
                tags=tags,
                asset_selection=[dg.AssetKey(name) for name in wanted],
                asset_check_keys=[key for name in wanted for key in _checks_of(stages[name])],
            )
        )
    return requests


def _checks_of(stage: Stage) -> Iterator[dg.AssetCheckKey]:
    """Yield the keys of all checks of a stage, without which the preview of a tick in the UI launches no run."""
    comparisons = [check.name for check in stage.checks if check.compares]
    for name in (MATERIALIZATION_ERRORS, *comparisons, UP_TO_DATE):
        yield dg.AssetCheckKey(dg.AssetKey(stage.name), name)


def log_due(context: dg.SensorEvaluationContext | dg.ScheduleEvaluationContext, due: Due) -> None:
    """Log why shards are due, and which shards the storage refused."""
    for line in status_lines(due.shards)[:10]:
        context.log.info(f"{line.shards} shards: {line.status.text}")
    if due.refused:
        context.log.warning(f"{len(due.refused)} shards are left out: the storage refused their records")
