"""What is logged of one shard at one stage: its materialization, or its error, and an evaluation of each check."""

import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import dagster as dg

# Dagster takes this class in a public place and gives it no public name. test_checks.py holds what it does there.
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData as Target,
)

from interleaved_assets.defs.metadata import shard_metadata
from interleaved_assets.model.errors import InterleavedError
from interleaved_assets.pipeline.checks.keep_rate import keep_rate, keep_rates_of
from interleaved_assets.pipeline.checks.verdict import Basis, ShardCheck, Verdict
from interleaved_assets.pipeline.record import Record
from interleaved_assets.pipeline.stage import Outcome, Stage
from interleaved_assets.settings import Settings

_TOLD: Final = 2  # observations of a shard that one run makes at one stage, at most


class Recorded(NamedTuple):
    """A shard whose materialization is logged, for checks that come later."""

    record: Record
    target: Target | None


def record_success(
    context: dg.AssetExecutionContext,
    checks: Sequence[ShardCheck],
    key: str,
    outcome: Outcome,
    pictures: Mapping[str, dg.MetadataValue],
    tags: Mapping[str, str],
    settings: Settings,
) -> Recorded:
    """Log that a shard is materialized, and what its checks say, but for those that compare it with others.

    Checks judge before anything is logged: where one has a defect, the shard is not called materialized.
    """
    basis = Basis(settings)
    verdicts = {check.name: check.judge(outcome.record, basis) for check in checks if not check.compares}
    context.log_event(
        dg.AssetMaterialization(
            context.asset_key, partition=key, metadata=shard_metadata(outcome, settings, pictures), tags=tags
        )
    )
    recorded = Recorded(outcome.record, _latest(context, key))
    for name, verdict in verdicts.items():
        _log(context, name, key, verdict, recorded.target)
    return recorded


class FirstFailure(NamedTuple):
    """Where on its way through a run a shard was stopped, and by what."""

    stage: str
    error: str


def record_failure(
    context: dg.AssetExecutionContext,
    stage: Stage,
    checks: Sequence[ShardCheck],
    key: str,
    error: BaseException,
    first: FirstFailure | None = None,
) -> None:
    """Log why a shard is not materialized, on its page as well, and those checks as failed that this is the failure of.

    Args:
        first: what stopped the shard at an earlier stage of this run, where that is the reason.
    """
    # an error that is not ours is a defect: its traceback belongs in the log
    traceback = None if isinstance(error, InterleavedError) else error
    context.log.error(f"{stage.name}, shard {key}: {describe(error)}", exc_info=traceback)
    first = first or FirstFailure(stage.name, describe(error))
    context.log_event(
        dg.AssetObservation(
            context.asset_key,
            partition=key,
            description=describe(error),
            metadata={"error": dg.MetadataValue.text(first.error), "failed_at": dg.MetadataValue.text(first.stage)},
        )
    )
    broken = [check for check in checks if isinstance(error, check.failed_by)]
    target = _latest(context, key) if broken else None
    for check in broken:
        verdict = Verdict(False, "ERROR", f"not materialized: {error}", {"error": describe(error)})
        _log(context, check.name, key, verdict, target)


def first_failures(context: dg.AssetExecutionContext, stage: str, keys: Sequence[str]) -> dict[str, FirstFailure]:
    """What stopped each of ``keys`` at ``stage`` or before it, as :func:`record_failure` told of it in this run."""
    if not keys:
        return {}
    told = context.instance.fetch_observations(
        dg.AssetRecordsFilter(asset_key=dg.AssetKey(stage), asset_partitions=list(keys)), limit=_TOLD * len(keys)
    ).records
    # a step that ended before it came to a shard has told nothing of it
    found = dict.fromkeys(keys, FirstFailure(stage, "it did not come to this shard"))
    for record in reversed(told):
        event = record.asset_observation
        if event is not None and record.run_id == context.run.run_id and "failed_at" in event.metadata:
            texts = {name: str(event.metadata[name].value) for name in ("failed_at", "error")}
            found[str(event.partition)] = FirstFailure(texts["failed_at"], texts["error"])
    return found


def record_comparisons(
    context: dg.AssetExecutionContext,
    stage: Stage,
    checks: Sequence[ShardCheck],
    recorded: Mapping[str, Recorded],
    settings: Settings,
) -> None:
    """Log the checks that compare shards, once for all shards of the step: the others are looked up only once."""
    elsewhere = sorted(context.instance.get_materialized_partitions(context.asset_key) - recorded.keys())
    rates = keep_rates_of(elsewhere, stage, settings)
    here = {key: keep_rate(shard.record) for key, shard in recorded.items()}
    basis = Basis(settings, rates | {key: rate for key, rate in here.items() if rate is not None})
    for key, shard in recorded.items():
        for check in checks:
            if check.compares:
                _log(context, check.name, key, check.judge(shard.record, basis), shard.target)


def describe(error: BaseException) -> str:
    """An error in words; of one that is not ours, its type as well."""
    return str(error) if isinstance(error, InterleavedError) else f"{type(error).__name__}: {error}"


def _log(context: dg.AssetExecutionContext, check_name: str, key: str, verdict: Verdict, target: Target | None) -> None:
    context.log_event(
        dg.AssetCheckEvaluation(
            asset_key=context.asset_key,
            check_name=check_name,
            passed=verdict.passed,
            severity=dg.AssetCheckSeverity(verdict.severity),
            description=verdict.summary,
            metadata=dict(verdict.figures),
            target_materialization_data=target,
            partition=key,
        )
    )


def _latest(context: dg.AssetExecutionContext, key: str) -> Target | None:
    """The shard's latest materialization: the UI takes the evaluation of any other for outdated, and shows none."""
    ids = context.instance.get_latest_storage_id_by_partition(
        context.asset_key, dg.DagsterEventType.ASSET_MATERIALIZATION, {key}
    )
    return Target(storage_id=ids[key], run_id=context.run.run_id, timestamp=time.time()) if key in ids else None
