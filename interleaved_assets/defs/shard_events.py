"""What is logged of one shard at one stage: its materialization, or its error, and an evaluation of each check."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import dagster as dg

# Dagster takes this class in a public place and gives it no public name. test_checks.py holds what it does there.
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData as Target,
)

from interleaved_assets.defs.latest import latest_ids, observations
from interleaved_assets.defs.metadata import INPUT_EVENT, shard_metadata
from interleaved_assets.model.errors import InterleavedError
from interleaved_assets.pipeline.checks.keep_rate import keep_rate, keep_rates_of
from interleaved_assets.pipeline.checks.verdict import Basis, ShardCheck, Verdict
from interleaved_assets.pipeline.execute import Stage, StageOutcome
from interleaved_assets.pipeline.record import Record
from interleaved_assets.settings import Settings

_FAILED_AT: Final = "failed_at"
_ERROR: Final = "error"


class Recorded(NamedTuple):
    """A shard whose materialization is logged, for checks that come later."""

    record: Record
    target: Target | None


def record_success(
    context: dg.AssetExecutionContext,
    checks: Sequence[ShardCheck],
    key: str,
    outcome: StageOutcome,
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
    input_events: Mapping[str, int],
    first: FirstFailure | None = None,
) -> None:
    """Log why a shard is not materialized, on its page as well, and those checks as failed that this is the failure of.

    Args:
        input_events: for each input that has one, the id of the event that brought what the shard was tried with.
        first: what stopped the shard at an earlier stage of this run, where that is the reason.
    """
    log_error(context, f"{stage.name}, shard {key}", error)
    first = first or FirstFailure(stage.name, describe(error))
    context.log_event(
        dg.AssetObservation(
            context.asset_key,
            partition=key,
            description=describe(error),
            metadata={_ERROR: dg.MetadataValue.text(first.error), _FAILED_AT: dg.MetadataValue.text(first.stage)},
            tags={f"{INPUT_EVENT}/{name}": str(event) for name, event in input_events.items()},
        )
    )
    broken = [check for check in checks if isinstance(error, check.failed_by)]
    target = _latest(context, key) if broken else None
    for check in broken:
        verdict = Verdict(False, "ERROR", f"not materialized: {error}", {"error": describe(error)})
        _log(context, check.name, key, verdict, target)


class Failure(NamedTuple):
    """What :func:`record_failure` told of a shard."""

    first: FirstFailure
    run_id: str
    input_events: dict[str, int]


def standing_failures(instance: dg.DagsterInstance, stage: str, keys: Collection[str]) -> dict[str, Failure]:
    """What was told last at ``stage`` of those of ``keys`` that failed there and were not made since."""
    told = latest_ids(instance, stage, dg.DagsterEventType.ASSET_OBSERVATION, keys)
    made = latest_ids(instance, stage, dg.DagsterEventType.ASSET_MATERIALIZATION, told)
    failures: dict[str, Failure] = {}
    for record in observations(instance, stage, [event for key, event in told.items() if event > made.get(key, -1)]):
        event = record.asset_observation
        if event is None or _FAILED_AT not in event.metadata:
            continue  # what else is told of shards, such as their status
        first = FirstFailure(str(event.metadata[_FAILED_AT].value), str(event.metadata[_ERROR].value))
        input_events = {
            name.removeprefix(f"{INPUT_EVENT}/"): int(tag)
            for name, tag in event.tags.items()
            if name.startswith(f"{INPUT_EVENT}/")
        }
        failures[str(event.partition)] = Failure(first, record.run_id, input_events)
    return failures


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


def log_error(context: dg.AssetExecutionContext, where: str, error: BaseException) -> None:
    """Log an error; one that is not ours is a defect: its traceback belongs in the log."""
    traceback = None if isinstance(error, InterleavedError) else error
    context.log.error(f"{where}: {describe(error)}", exc_info=traceback)


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
    found = context.instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=context.asset_key, asset_partitions=[key]), limit=1
    ).records
    if not found:
        return None
    return Target(storage_id=found[0].storage_id, run_id=found[0].run_id, timestamp=found[0].timestamp)
