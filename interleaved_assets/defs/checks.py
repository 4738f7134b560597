"""The checks over all shards: of the raw root, and of each stage."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import dagster as dg

from interleaved_assets.defs.partitions import SHARDS, progress
from interleaved_assets.defs.requests import BRING_UP_TO_DATE
from interleaved_assets.pipeline.run.record import RAW_SHARDS
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status.dataset_status import read_dataset_status
from interleaved_assets.pipeline.status.raw_root import DESCRIPTION, RAW_ROOT_FRESH, judge_raw_root
from interleaved_assets.pipeline.status.status import StatusLine, status_lines
from interleaved_assets.pipeline.status.up_to_date import DESCRIPTION as UP_TO_DATE_DESCRIPTION
from interleaved_assets.pipeline.status.up_to_date import UP_TO_DATE, judge_up_to_date, shards_not_current
from interleaved_assets.settings import Settings

RAW_ROOT_CHECK: Final = dg.AssetCheckKey(dg.AssetKey(RAW_SHARDS), RAW_ROOT_FRESH)


def build_raw_root_check(settings: Settings) -> dg.AssetChecksDefinition:
    """Return the check that the raw root can be listed and that its newest shard is not too old."""

    @dg.asset_check(
        asset=RAW_SHARDS,
        name=RAW_ROOT_FRESH,
        description=DESCRIPTION,
    )
    def raw_root_fresh(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        registered = context.instance.get_dynamic_partitions(SHARDS)
        verdict = judge_raw_root(settings.storage, settings.checks.max_raw_age_hours, time.time(), registered)
        figures: dict[str, Any] = dict(verdict.figures)
        if (landed := figures.pop("newest_landed_at", None)) is not None:
            figures["newest_landed"] = dg.MetadataValue.timestamp(float(landed))
        return dg.AssetCheckResult(
            passed=verdict.passed,
            severity=dg.AssetCheckSeverity(verdict.severity),
            description=verdict.summary,
            metadata=figures,
        )

    return raw_root_fresh


def up_to_date_checks(settings: Settings) -> dg.AssetSelection:
    """Return the selection of the check ``up_to_date`` of every stage."""
    return dg.AssetSelection.checks(*(dg.AssetCheckKey(dg.AssetKey(name), UP_TO_DATE) for name in stage_dag(settings)))


def build_up_to_date_check(settings: Settings) -> dg.AssetChecksDefinition:
    """Return the check of each stage that every shard is current there, which Dagster itself does not show.

    Dagster adds the check to runs of stages, and a large backfill has hundreds of runs, each of which would read all
    records at its end. If there are many shards, these runs leave it out.
    """
    stages = stage_dag(settings)

    @dg.multi_asset_check(
        name=UP_TO_DATE,
        specs=[dg.AssetCheckSpec(UP_TO_DATE, asset=name, description=UP_TO_DATE_DESCRIPTION) for name in stages],
        can_subset=True,
    )
    def up_to_date(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        yield from up_to_date_results(context, stages, settings)

    return up_to_date


_LINES_SHOWN: Final = 50
_MOST_AFTER_A_RUN: Final = 1_000
"""Number of shards above which runs of stages leave the check out: Dagster adds it to each run of a backfill."""


def up_to_date_results(
    context: dg.AssetCheckExecutionContext, stages: Iterable[str], settings: Settings
) -> Iterator[dg.AssetCheckResult]:
    """Yield a result for each selected stage; none after a run of stages over a large data set."""
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
