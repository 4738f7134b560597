"""The check of the raw root, which is not about one shard; a schedule launches it."""

import time
from typing import Any, Final

import dagster as dg

from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.pipeline.checks.raw_root import DESCRIPTION, RAW_ROOT_FRESH, judge_raw_root
from interleaved_assets.pipeline.record import RAW_SHARDS
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
