"""Failures of shards as the event log has them: where a shard failed last, and why."""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import dagster as dg

from interleaved_assets.defs.latest import event_type, latest_ids, observations
from interleaved_assets.defs.metadata import DATA_VERSION, INPUT_EVENT
from interleaved_assets.defs.private_api.instance import failure_of_last_run
from interleaved_assets.pipeline.record import RAW_SHARDS
from interleaved_assets.pipeline.stage import Stage
from interleaved_assets.pipeline.status import Status

FAILED_AT: Final = "failed_at"
ERROR: Final = "error"
"""Metadata of the observation of a failure: the first stage that failed, and its error."""
_RUNS_ASKED: Final = 100
"""Shards of a stage without an error of their own whose run is looked up; each takes two queries."""


class FirstFailure(NamedTuple):
    """The stage of a run at which a shard failed, and its error."""

    stage: str
    error: str


class ShardFailure(NamedTuple):
    """The failure of a shard, as ``shard_events.record_failure`` has logged it."""

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
    if event is None or FAILED_AT not in event.metadata:
        return None
    input_events = {
        name.removeprefix(f"{INPUT_EVENT}/"): int(tag)
        for name, tag in event.tags.items()
        if name.startswith(f"{INPUT_EVENT}/")
    }
    first = FirstFailure(str(event.metadata[FAILED_AT].value), str(event.metadata[ERROR].value))
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
        due: shards that are not current, by key.
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
