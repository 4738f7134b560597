"""The events of one shard at one stage: its materialization, or its error, and an evaluation of each check."""

from collections.abc import Mapping
from typing import NamedTuple

import dagster as dg

from interleaved_assets.defs.metadata import rounded, shard_metadata, version_tags
from interleaved_assets.defs.partitions import SHARDS, progress
from interleaved_assets.defs.private import TargetMaterialization
from interleaved_assets.model.errors import InterleavedError, describe
from interleaved_assets.pipeline.checks.keep_rate_within_bounds import keep_rate, keep_rates_of
from interleaved_assets.pipeline.run.check import MATERIALIZATION_ERRORS, Basis, Verdict, combine
from interleaved_assets.pipeline.run.failures import Failure
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.pipeline.run.stage import Stage, StageOutcome
from interleaved_assets.settings import Settings


class LoggedShard(NamedTuple):
    """A shard whose materialization is logged, for checks at the end of the step."""

    record: Record
    target: TargetMaterialization


def record_success(
    context: dg.AssetExecutionContext,
    stage: Stage,
    outcome: StageOutcome,
    shown: Mapping[str, dg.MetadataValue],
    input_events: Mapping[str, int],
    code_version: str,
    settings: Settings,
) -> LoggedShard:
    """Log the materialization of a shard, and its checks except those that compare it with other shards.

    Args:
        outcome: the outcome of the shard at this stage.
        shown: metadata besides its figures, such as pictures.
        input_events: for each input, the id of the event with the version that was used, if there is one.
    """
    record = outcome.record
    basis = Basis(settings, stage)
    # judged before anything is logged: if a check raises, the shard does not count as materialized
    verdict = combine({check: check.judge(record, basis) for check in stage.checks if not check.compares})
    context.log_event(
        dg.AssetMaterialization(
            context.asset_key,
            partition=record.shard,
            metadata=shard_metadata(outcome, settings, shown),
            tags=version_tags(record, code_version, input_events),
        )
    )
    target = _latest(context, record.shard)
    assert target is not None  # it has just been logged
    _log(context, MATERIALIZATION_ERRORS, record.shard, verdict, target)
    return LoggedShard(record, target)


def record_failure(
    context: dg.AssetExecutionContext,
    stage: Stage,
    key: str,
    error: BaseException,
    first: Failure | None = None,
) -> None:
    """Log the error of a shard in the run and on the shard's page, and fail the checks that the error concerns.

    An exception of another package is a defect, and is logged with its traceback. ``first`` is the failure at an
    earlier stage, if that is the reason.
    """
    traceback = None if isinstance(error, InterleavedError) else error
    context.log.error(f"{stage.name}, shard {key}: {describe(error)}", exc_info=traceback)
    context.log_event(
        dg.AssetObservation(
            context.asset_key,
            partition=key,
            description=describe(error),
            metadata={
                "error": dg.MetadataValue.text(first.error if first else describe(error)),
                "failed_at": dg.MetadataValue.text(first.stage if first else stage.name),
            },
        )
    )
    verdict = Verdict(False, "ERROR", f"not materialized: {error}", {})
    if broken := {check: verdict for check in stage.checks if isinstance(error, check.failed_by)}:
        _log(context, MATERIALIZATION_ERRORS, key, combine(broken), _latest(context, key))


def record_comparisons(
    context: dg.AssetExecutionContext,
    stage: Stage,
    recorded: Mapping[str, LoggedShard],
    settings: Settings,
) -> None:
    """Log the checks that compare shards, for all shards of the step together, so that others are read only once.

    Shards whose records cannot be read are not compared with.
    """
    registered = context.instance.get_dynamic_partitions(SHARDS)
    made = progress(context.instance, [stage.name], registered).made[stage.name]
    elsewhere = sorted(made - recorded.keys())
    rates = keep_rates_of(elsewhere, stage, settings)
    here = {key: keep_rate(shard.record) for key, shard in recorded.items()}
    basis = Basis(settings, stage, rates | {key: rate for key, rate in here.items() if rate is not None})
    for key, shard in recorded.items():
        for check in stage.checks:
            if check.compares:
                _log(context, check.name, key, check.judge(shard.record, basis), shard.target)


def _log(
    context: dg.AssetExecutionContext,
    check_name: str,
    key: str,
    verdict: Verdict,
    target: TargetMaterialization | None,
) -> None:
    context.log_event(
        dg.AssetCheckEvaluation(
            asset_key=context.asset_key,
            check_name=check_name,
            passed=verdict.passed,
            severity=dg.AssetCheckSeverity(verdict.severity),
            description=None if verdict.passed else verdict.summary,  # Dagster stores the description three times
            metadata={name: rounded(value) for name, value in verdict.figures.items()},
            target_materialization_data=target,
            partition=key,
        )
    )


def _latest(context: dg.AssetExecutionContext, key: str) -> TargetMaterialization | None:
    """Return the shard's latest materialization. The UI shows only evaluations that name it."""
    found = context.instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=context.asset_key, asset_partitions=[key]), limit=1
    ).records
    if not found:
        return None
    return TargetMaterialization(storage_id=found[0].storage_id, run_id=found[0].run_id, timestamp=found[0].timestamp)
