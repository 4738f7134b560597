"""The checks that are not about one shard: of the raw root, and of each stage over all shards."""

import time
from collections.abc import Iterator
from typing import Any, Final

import dagster as dg

from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.pipeline.checks.raw_root import DESCRIPTION, RAW_ROOT_FRESH, judge_raw_root
from interleaved_assets.pipeline.checks.up_to_date import DESCRIPTION as UP_TO_DATE_DESCRIPTION
from interleaved_assets.pipeline.checks.up_to_date import UP_TO_DATE
from interleaved_assets.pipeline.record import RAW_SHARDS
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings

RAW_ROOT_CHECK: Final = dg.AssetCheckKey(dg.AssetKey(RAW_SHARDS), RAW_ROOT_FRESH)


def build_raw_root_check(settings: Settings) -> dg.AssetChecksDefinition:
    """The check whether the raw root can be listed and has a new shard lately."""

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
    """The check of every stage."""
    return dg.AssetSelection.checks(*(dg.AssetCheckKey(dg.AssetKey(name), UP_TO_DATE) for name in stage_dag(settings)))


def build_up_to_date_check(settings: Settings) -> dg.AssetChecksDefinition:
    """The check of each stage whether every shard is current there, which Dagster itself does not show.

    Dagster adds it to runs of stages, where it would read all records at the end of each of the hundreds of runs of a
    large backfill: these runs leave it out where there are many shards.
    """
    stages = stage_dag(settings)

    @dg.multi_asset_check(
        name=UP_TO_DATE,
        specs=[dg.AssetCheckSpec(UP_TO_DATE, asset=name, description=UP_TO_DATE_DESCRIPTION) for name in stages],
        can_subset=True,
    )
    def up_to_date(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        from interleaved_assets.defs.steps.checks import up_to_date_results  # the check begins here

        yield from up_to_date_results(context, stages, settings)

    return up_to_date
