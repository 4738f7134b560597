"""The check of the raw root, which belongs to no shard and no run: it is launched by itself, as a cron says."""

import time
from typing import Any, Final

import dagster as dg
from dagster_shared.check import CheckError

from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.model.errors import SettingsError
from interleaved_assets.pipeline.checks.raw_root import DESCRIPTION, RAW_ROOT_FRESH, judge_raw_root
from interleaved_assets.pipeline.record import RAW_SHARDS
from interleaved_assets.settings import Settings

RAW_ROOT_CHECK: Final = dg.AssetCheckKey(dg.AssetKey(RAW_SHARDS), RAW_ROOT_FRESH)


def build_raw_root_check(settings: Settings) -> dg.AssetChecksDefinition:
    """Whether the raw root can be listed and something has landed there lately.

    Raises:
        SettingsError: ``checks.raw_root_cron`` is no cron expression.
    """
    cron = settings.checks.raw_root_cron
    try:
        # not on_cron: that waits for the asset to be updated, and this is about its not being
        condition: dg.AutomationCondition[dg.AssetCheckKey] = dg.AutomationCondition.cron_tick_passed(cron)
    except CheckError as error:
        raise SettingsError(
            f"checks.raw_root_cron: {cron!r} is no cron expression of five fields, such as 0 * * * *"
        ) from error

    @dg.asset_check(
        asset=RAW_SHARDS,
        name=RAW_ROOT_FRESH,
        description=DESCRIPTION,
        automation_condition=condition,
    )
    def raw_root_fresh(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        verdict = judge_raw_root(settings, time.time(), context.instance.get_dynamic_partitions(SHARDS))
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
