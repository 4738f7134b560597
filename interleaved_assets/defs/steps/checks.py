"""The check of each stage whether every shard is current there: it reads the records of all shards."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import dagster as dg

from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.defs.progress import progress
from interleaved_assets.defs.requests import BRING_UP_TO_DATE
from interleaved_assets.pipeline.checks.up_to_date import UP_TO_DATE
from interleaved_assets.pipeline.dataset_status import read_dataset_status
from interleaved_assets.pipeline.status import StatusLine, status_lines
from interleaved_assets.pipeline.up_to_date import judge_up_to_date, shards_not_current
from interleaved_assets.settings import Settings

_LINES_SHOWN: Final = 50
_MOST_AFTER_A_RUN: Final = 1_000
"""Shards above which runs of stages leave the check out: Dagster adds it to each of the hundreds of a backfill."""


def up_to_date_results(
    context: dg.AssetCheckExecutionContext, stages: Iterable[str], settings: Settings
) -> Iterator[dg.AssetCheckResult]:
    """A result for each selected stage; none after a run of stages over a large data set."""
    registered = context.instance.get_dynamic_partitions(SHARDS)
    of_stages = context.run.asset_selection or context.run.job_name == BRING_UP_TO_DATE
    if of_stages and len(registered) > _MOST_AFTER_A_RUN:
        context.log.info(f"not evaluated with each run over {len(registered)} shards, but by {UP_TO_DATE}'s schedule")
        return
    failed = progress(context.instance, stages, registered).failed
    dataset = read_dataset_status(settings, registered, failed)
    shards = len(dataset.keys) if dataset.raws is None else len(dataset.raws)
    not_current = shards_not_current(dataset)
    for key in sorted(context.selected_asset_check_keys):
        statuses = not_current[key.asset_key.path[-1]]
        problems = {key: dataset.problem_of(key, status) for key, status in statuses.items()}
        verdict = judge_up_to_date(statuses, shards, dataset.problem)
        figures: dict[str, Any] = dict(verdict.figures)
        if statuses:
            figures = {"not_current": _status_table(status_lines(statuses, problems)), **figures}
        if dataset.problem:
            figures["raw_root"] = f"changed raw shards cannot be recognized: {dataset.problem}"
        yield dg.AssetCheckResult(
            asset_key=key.asset_key,
            check_name=key.name,
            passed=verdict.passed,
            severity=dg.AssetCheckSeverity(verdict.severity),
            description=verdict.summary,
            metadata=figures,
        )


def _status_table(lines: Sequence[StatusLine]) -> dg.TableMetadataValue:
    return dg.MetadataValue.table(
        [
            dg.TableRecord(
                {"state": str(line.status.state), "why": line.why, "shards": line.shards, "for example": line.examples}
            )
            for line in lines[:_LINES_SHOWN]
        ]
    )
