"""The events of one shard at one stage: its materialization, or its error, and an evaluation of each check."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import dagster as dg

from interleaved_assets.defs.interrupts import interrupts_deferred
from interleaved_assets.defs.latest import event_type, latest_ids, observations, some_at_a_time
from interleaved_assets.defs.metadata import DATA_VERSION, INPUT_EVENT, rounded, shard_metadata
from interleaved_assets.defs.partitions import SHARDS, progress
from interleaved_assets.defs.private_api import (
    TargetMaterialization,
    events_together,
    failure_of_last_run,
    last_materializations,
)
from interleaved_assets.model.errors import InterleavedError, describe
from interleaved_assets.pipeline.checks.keep_rate import keep_rate, keep_rates_of
from interleaved_assets.pipeline.checks.verdict import Basis, ShardCheck, Verdict, combine
from interleaved_assets.pipeline.record import RAW_SHARDS, Record
from interleaved_assets.pipeline.stage import Stage, StageOutcome
from interleaved_assets.pipeline.status import Status
from interleaved_assets.settings import Settings

MATERIALIZATION_ERRORS: Final = "materialization_errors"
"""The check of each stage that holds all that judge a shard alone: each evaluation takes 1.7 kB, and time."""
TOGETHER: Final = 50
"""Shards whose events are stored in one transaction, at most; on SQLite, other runs wait for it."""
_FAILED_AT: Final = "failed_at"
_ERROR: Final = "error"
_RUNS_ASKED: Final = 100
"""Shards of a stage without an error of their own whose run is looked up; each takes two queries."""


class LoggedShard(NamedTuple):
    """A shard whose materialization is logged, for checks at the end of the step."""

    record: Record
    target: TargetMaterialization


class Success(NamedTuple):
    """A shard that was made, with what is logged of it, but the checks that compare it with other shards."""

    key: str
    record: Record
    metadata: Mapping[str, Any]
    tags: Mapping[str, str]
    verdict: Verdict

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
        return cls(key, outcome.record, shard_metadata(outcome, settings, shown), tags, verdict)


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
        made = last_materializations(context.instance, context.asset_key, context.run.run_id, len(shards))
        for shard in shards:
            _log(context, MATERIALIZATION_ERRORS, shard.key, shard.verdict, made[shard.key])
    return {shard.key: LoggedShard(shard.record, made[shard.key]) for shard in shards}


class FirstFailure(NamedTuple):
    """The stage of a run at which a shard failed, and its error."""

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
    """Log in the run and on the shard's page why it is not materialized, and fail the checks that the error concerns.

    Args:
        context: of the step.
        stage: that failed, or was skipped.
        checks: of the stage.
        key: of the shard.
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
            metadata={_ERROR: dg.MetadataValue.text(first.error), _FAILED_AT: dg.MetadataValue.text(first.stage)},
            tags={f"{INPUT_EVENT}/{name}": str(event) for name, event in input_events.items()},
        )
    )
    verdict = Verdict(False, "ERROR", f"not materialized: {error}", {})
    if broken := {check: verdict for check in checks if isinstance(error, check.failed_by)}:
        _log(context, MATERIALIZATION_ERRORS, key, combine(broken), _latest(context, key))


class ShardFailure(NamedTuple):
    """The failure of a shard, as :func:`record_failure` has logged it."""

    first: FirstFailure
    run_id: str
    input_events: dict[str, int]


def standing_failures(instance: dg.DagsterInstance, stage: str, keys: Collection[str]) -> dict[str, ShardFailure]:
    """For those of ``keys`` that failed at ``stage`` and were not materialized since, their last failure there.

    Other observations, such as a status note that was published after the failure, do not hide it.
    """
    observed = latest_ids(instance, stage, dg.DagsterEventType.ASSET_OBSERVATION, keys)
    made = latest_ids(instance, stage, dg.DagsterEventType.ASSET_MATERIALIZATION, observed)
    recent = {key: event for key, event in observed.items() if event > made.get(key, -1)}
    failures: dict[str, ShardFailure] = {}
    other: list[str] = []
    for record in observations(instance, stage, ids=list(recent.values())):
        if failure := _failure(record):
            failures[str(record.partition_key)] = failure
        else:
            other.append(str(record.partition_key))
    for record in observations(instance, stage, keys=other):
        key = str(record.partition_key)
        if key not in failures and record.storage_id > made.get(key, -1) and (failure := _failure(record)):
            failures[key] = failure
    return failures


def _failure(record: dg.EventLogRecord) -> ShardFailure | None:
    """The failure in an observation; None for other observations."""
    event = record.asset_observation
    if event is None or _FAILED_AT not in event.metadata:
        return None
    input_events = {
        name.removeprefix(f"{INPUT_EVENT}/"): int(tag)
        for name, tag in event.tags.items()
        if name.startswith(f"{INPUT_EVENT}/")
    }
    first = FirstFailure(str(event.metadata[_FAILED_AT].value), str(event.metadata[_ERROR].value))
    return ShardFailure(first, record.run_id, input_events)


def last_errors(instance: dg.DagsterInstance, failed: Mapping[str, Collection[str]]) -> dict[str, str]:
    """The error of the last run of each shard of ``failed`` (by stage), as far as known.

    A run that was killed before it reached a shard has logged no error of it: then the failure of the run is given.
    """
    errors: dict[str, str] = {}
    for stage, keys in failed.items():
        errors = {key: found.first.error for key, found in standing_failures(instance, stage, keys).items()} | errors
    for stage, keys in failed.items():
        for key in [key for key in keys if key not in errors][:_RUNS_ASKED]:
            errors[key] = failure_of_last_run(instance, dg.AssetKey(stage), key)
    return errors


def failed_with_present_inputs(
    instance: dg.DagsterInstance, due: Mapping[str, Status], stages: Mapping[str, Stage], versions: Mapping[str, str]
) -> set[str]:
    """Those of ``due`` that failed at their first stage that is not current, with their present inputs.

    Args:
        instance: Dagster's.
        due: shards that are not current, by key.
        stages: by name.
        versions: content versions of the raw shards, by key.
    """
    found: set[str] = set()
    for name, stage in stages.items():
        keys = [key for key, status in due.items() if status.stage == name]
        failures = standing_failures(instance, name, keys)
        tried = {key: failures[key].input_events for key in failures}
        for source in stage.inputs:
            if source == RAW_SHARDS:
                # compare versions: the snapshot of the raw root may be newer than the events
                events = [event[source] for event in tried.values() if source in event]
                there = {
                    record.storage_id: (record.asset_observation.tags or {}).get(DATA_VERSION)
                    for record in observations(instance, source, ids=events)
                    if record.asset_observation is not None
                }
                same = {key for key, event in tried.items() if there.get(event.get(source, -1)) == versions[key]}
            else:
                present = latest_ids(instance, source, event_type(source), tried)
                same = {key for key, event in tried.items() if event.get(source) == present.get(key)}
            tried = {key: tried[key] for key in same}
        found |= tried.keys()
    return found


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
                        _log(context, check.name, key, check.judge(shard.record, basis), shard.target)


def log_error(context: dg.AssetExecutionContext, where: str, error: BaseException) -> None:
    """Log an error; an exception that is not of this package is a defect and is logged with its traceback."""
    traceback = None if isinstance(error, InterleavedError) else error
    context.log.error(f"{where}: {describe(error)}", exc_info=traceback)


def _log(
    context: dg.AssetExecutionContext, check_name: str, key: str, verdict: Verdict, target: TargetMaterialization | None
) -> None:
    context.log_event(
        dg.AssetCheckEvaluation(
            asset_key=context.asset_key,
            check_name=check_name,
            passed=verdict.passed,
            severity=dg.AssetCheckSeverity(verdict.severity),
            description=None if verdict.passed else verdict.summary,  # Dagster stores it three times
            metadata={name: rounded(value) for name, value in verdict.figures.items()},
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
