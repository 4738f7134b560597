"""The events of one shard at one stage: its materialization, or its error, and an evaluation of each check."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import dagster as dg

from interleaved_assets.defs.interrupts import interrupts_deferred
from interleaved_assets.defs.latest import some_at_a_time
from interleaved_assets.defs.metadata import INPUT_EVENT, rounded, shard_metadata
from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.defs.private_api.instance import TargetMaterialization, events_of_run, events_together
from interleaved_assets.defs.private_api.stored_events import UNCHANGED
from interleaved_assets.defs.progress import progress
from interleaved_assets.defs.steps.failures import ERROR, FAILED_AT, FirstFailure
from interleaved_assets.model.errors import InterleavedError, describe
from interleaved_assets.pipeline.checks.keep_rate import keep_rate, keep_rates_of
from interleaved_assets.pipeline.checks.verdict import MATERIALIZATION_ERRORS, Basis, ShardCheck, Verdict, combine
from interleaved_assets.pipeline.record import Record
from interleaved_assets.pipeline.stage import Stage, StageOutcome
from interleaved_assets.settings import Settings

TOGETHER: Final = 50
"""Shards whose events are stored in one transaction, at most; on SQLite, other runs wait for it."""


class LoggedShard(NamedTuple):
    """A shard whose materialization is logged, for checks at the end of the step."""

    record: Record
    target: TargetMaterialization
    unchanged: bool


class Success(NamedTuple):
    """A shard that was made, with what is logged of it, but the checks that compare it with other shards."""

    key: str
    record: Record
    metadata: Mapping[str, Any]
    tags: Mapping[str, str]
    verdict: Verdict
    unchanged: bool

    @classmethod
    def judged(
        cls,
        key: str,
        outcome: StageOutcome,
        checks: Sequence[ShardCheck],
        shown: Mapping[str, dg.MetadataValue],
        tags: Mapping[str, str],
        settings: Settings,
    ) -> "Success":
        """A shard whose checks have judged it. Where a check raises, the shard does not count as materialized.

        ``shown`` are metadata besides its figures, such as pictures.
        """
        basis = Basis(settings)
        verdict = combine({check: check.judge(outcome.record, basis) for check in checks if not check.compares})
        metadata = shard_metadata(outcome, settings, shown)
        return cls(key, outcome.record, metadata, tags, verdict, outcome.unchanged)


def record_successes(context: dg.AssetExecutionContext, shards: Sequence[Success]) -> dict[str, LoggedShard]:
    """Log the materializations of shards and their checks together: all of them or none."""
    if not shards:
        return {}
    with events_together(context.instance):
        for shard in shards:
            context.log_event(
                dg.AssetMaterialization(
                    context.asset_key, partition=shard.key, metadata=dict(shard.metadata), tags=dict(shard.tags)
                )
            )
        run_id, kind = context.run.run_id, dg.DagsterEventType.ASSET_MATERIALIZATION
        made = {
            event.partition: TargetMaterialization(
                storage_id=event.storage_id, run_id=run_id, timestamp=event.timestamp
            )
            for event in events_of_run(context.instance, run_id, kind, asset=context.asset_key, limit=len(shards))
        }
        for shard in shards:
            _log(context, MATERIALIZATION_ERRORS, shard.key, shard.verdict, made[shard.key], unchanged=shard.unchanged)
    return {shard.key: LoggedShard(shard.record, made[shard.key], shard.unchanged) for shard in shards}


def record_failure(
    context: dg.AssetExecutionContext,
    stage: Stage,
    checks: Sequence[ShardCheck],
    key: str,
    error: BaseException,
    input_events: Mapping[str, int],
    first: FirstFailure | None = None,
) -> None:
    """Log in the run and on the shard's page why it is not materialized, and fail the checks that the error concerns.

    Args:
        stage: that failed, or was skipped.
        error: why it is not materialized.
        input_events: for each input, the id of the event with the version that was used, where there is one.
        first: the failure at an earlier stage, where that is the reason.
    """
    log_error(context, f"{stage.name}, shard {key}", error)
    first = first or FirstFailure(stage.name, describe(error))
    context.log_event(
        dg.AssetObservation(
            context.asset_key,
            partition=key,
            description=describe(error),
            metadata={ERROR: dg.MetadataValue.text(first.error), FAILED_AT: dg.MetadataValue.text(first.stage)},
            tags={f"{INPUT_EVENT}/{name}": str(event) for name, event in input_events.items()},
        )
    )
    verdict = Verdict(False, "ERROR", f"not materialized: {error}", {})
    if broken := {check: verdict for check in checks if isinstance(error, check.failed_by)}:
        _log(context, MATERIALIZATION_ERRORS, key, combine(broken), _latest(context, key))


def record_comparisons(
    context: dg.AssetExecutionContext,
    stage: Stage,
    checks: Sequence[ShardCheck],
    recorded: Mapping[str, LoggedShard],
    settings: Settings,
) -> None:
    """Log the checks that compare shards, for all shards of the step together, so that others are read only once."""
    with interrupts_deferred():
        registered = context.instance.get_dynamic_partitions(SHARDS)
        made = progress(context.instance, [stage.name], registered).made[stage.name]
    elsewhere = sorted(made - recorded.keys())
    rates = keep_rates_of(elsewhere, stage, settings)
    here = {key: keep_rate(shard.record) for key, shard in recorded.items()}
    basis = Basis(settings, rates | {key: rate for key, rate in here.items() if rate is not None})
    for some in some_at_a_time(list(recorded.items()), TOGETHER):
        with interrupts_deferred(), events_together(context.instance):
            for key, shard in some:
                for check in checks:
                    if check.compares:
                        verdict = check.judge(shard.record, basis)
                        _log(context, check.name, key, verdict, shard.target, unchanged=shard.unchanged)


def log_error(context: dg.AssetExecutionContext, where: str, error: BaseException) -> None:
    """Log an error; an exception that is not of this package is a defect and is logged with its traceback."""
    traceback = None if isinstance(error, InterleavedError) else error
    context.log.error(f"{where}: {describe(error)}", exc_info=traceback)


def _log(
    context: dg.AssetExecutionContext,
    check_name: str,
    key: str,
    verdict: Verdict,
    target: TargetMaterialization | None,
    *,
    unchanged: bool = False,
) -> None:
    """Log an evaluation. Of an unchanged shard it is an event only where the check fails."""
    figures = {name: rounded(value) for name, value in verdict.figures.items()}
    context.log_event(
        dg.AssetCheckEvaluation(
            asset_key=context.asset_key,
            check_name=check_name,
            passed=verdict.passed,
            severity=dg.AssetCheckSeverity(verdict.severity),
            description=None if verdict.passed else verdict.summary,  # Dagster stores it three times
            metadata={**figures, UNCHANGED: True} if unchanged and verdict.passed else figures,
            target_materialization_data=target,
            partition=key,
        )
    )


def _latest(context: dg.AssetExecutionContext, key: str) -> TargetMaterialization | None:
    """The shard's latest materialization. The UI shows only evaluations that name it."""
    found = context.instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=context.asset_key, asset_partitions=[key]), limit=1
    ).records
    if not found:
        return None
    return TargetMaterialization(storage_id=found[0].storage_id, run_id=found[0].run_id, timestamp=found[0].timestamp)
