"""Runs of the real chain and ticks of the real sensor in the test's own process, and what they leave behind."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg

from interleaved_assets.defs.build import build_definitions
from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.defs.requests import BRING_UP_TO_DATE, RANGE_END, RANGE_START
from interleaved_assets.pipeline.run.check import MATERIALIZATION_ERRORS
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import STAGES

NO_TELEMETRY = {"telemetry": {"enabled": False}}
"""For an instance with a folder of its own, which would else write what it did into the home folder."""

_NO_OUTPUT = {
    "compute_logs": {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}
}

_SEVERITIES = {"passed": "", "warning": "WARN", "error": "ERROR"}
_SEPARATE = ("keep_rate_within_bounds", "up_to_date")


class Ran(NamedTuple):
    """What a run came to: whether it succeeded, what the failure says that ended it, and the errors in its log."""

    success: bool
    summary: str
    errors: list[str]


_loaded: list[tuple[Settings, dg.Definitions]] = []


def definitions_of(settings: Settings) -> dg.Definitions:
    """Those of the settings, made once for all ticks and runs until the settings change, as in a code server."""
    if not _loaded or _loaded[0][0] != settings:
        _loaded[:] = [(settings, build_definitions(settings))]
    return _loaded[0][1]


def run_chain(
    instance: dg.DagsterInstance, settings: Settings, keys: Sequence[str], stages: Sequence[str] = STAGES
) -> Ran:
    """One run of the chain, or of its first ``stages``, over ``keys``, which are registered where they are not yet."""
    instance.add_dynamic_partitions(SHARDS, list(keys))
    registered = [key for key in instance.get_dynamic_partitions(SHARDS) if key in set(keys)]
    result = (
        definitions_of(settings)
        .resolve_implicit_global_asset_job_def()
        .execute_in_process(
            instance=instance,
            asset_selection=[dg.AssetKey(name) for name in (*stages, *_more(settings))],
            tags={RANGE_START: registered[0], RANGE_END: registered[-1]},
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            raise_on_error=False,
        )
    )
    failures = [event.step_failure_data.user_failure_data for event in result.all_events if event.is_step_failure]
    log = instance.all_logs(result.run_id)
    return Ran(
        result.success,
        str(failures[-1].description) if failures and failures[-1] else "",
        [entry.user_message for entry in log if entry.level == logging.ERROR and entry.dagster_event is None],
    )


def _more(settings: Settings) -> list[str]:
    return ["image_export"] * settings.export.enabled + ["rewritten"] * bool(settings.rewriting.functions)


@contextmanager
def instance_on_disk(home: Path, *, keeps_output: bool = False) -> Iterator[dg.DagsterInstance]:
    """An instance that others can open as well, and that is opened again where ``home`` has one.

    Where it keeps what steps print, as by default, Dagster starts four processes for each run in this process.
    """
    home.mkdir(exist_ok=True)
    overrides = NO_TELEMETRY if keeps_output else NO_TELEMETRY | _NO_OUTPUT
    with dg.DagsterInstance.local_temp(str(home), overrides=overrides) as instance:
        yield instance


def check_up_to_date(settings: Settings, instance: dg.DagsterInstance) -> bool:
    """Run the check ``up_to_date`` of every stage, without the report; whether that succeeded."""
    job = definitions_of(settings).resolve_job_def("daily_report")
    keys = {dg.AssetCheckKey(dg.AssetKey(name), "up_to_date") for name in stage_dag(settings)}
    alone = job.get_subset(asset_selection=set(), asset_check_selection=keys)
    return alone.execute_in_process(instance=instance).success


def unfinished_run(instance: dg.DagsterInstance, settings: Settings, key: str) -> dg.DagsterRun:
    """A run of the chain over one shard that has begun and does not end."""
    return instance.create_run_for_job(
        definitions_of(settings).resolve_job_def(BRING_UP_TO_DATE),
        asset_selection=frozenset({dg.AssetKey("final_tars")}),
        tags={RANGE_START: key, RANGE_END: key},
        status=dg.DagsterRunStatus.STARTED,
    )


def materialized(instance: dg.DagsterInstance, asset: str) -> set[str]:
    """Keys of the shards for which ``asset`` was materialized."""
    return instance.get_materialized_partitions(dg.AssetKey(asset))


def delete_partitions(result: dg.SensorResult, instance: dg.DagsterInstance) -> None:
    """Delete the partitions that a tick wants deleted, as the daemon does."""
    for request in result.dynamic_partitions_requests or ():
        assert isinstance(request, dg.DeleteDynamicPartitionsRequest)
        for key in request.partition_keys:
            instance.delete_dynamic_partition(request.partitions_def_name, key)


class CheckResult(NamedTuple):
    """The result of one check of a shard, by itself or as one of those that ``materialization_errors`` holds."""

    passed: bool
    severity: str
    description: str
    figures: dict[str, Any]


def check_result(instance: dg.DagsterInstance, asset: str, check: str, key: str) -> CheckResult:
    """The latest of a shard; the severity of one that passes is empty."""
    for record in instance.event_log_storage.get_asset_check_execution_history(check_key(asset, check), limit=50):
        event = record.event.dagster_event if record.event else None
        found = event.event_specific_data if event else None
        if record.partition == key and isinstance(found, dg.AssetCheckEvaluation):
            figures = {name: value.value for name, value in found.metadata.items()}
            if found.check_name == check:
                severity = "" if found.passed else found.severity.value
                return CheckResult(found.passed, severity, str(found.description), figures)
            if check in figures:
                result, _, summary = str(figures[check]).partition(": ")
                prefix = "" if check == "rows_without_error" else f"{check}/"
                own = {name.removeprefix(prefix): value for name, value in figures.items() if name.startswith(prefix)}
                return CheckResult(result == "passed", _SEVERITIES[result], summary, own)
    raise AssertionError(f"{check} of {asset} was not evaluated for {key}")


def check_key(asset: str, check: str) -> dg.AssetCheckKey:
    """The check of Dagster that has the result of ``check``."""
    return dg.AssetCheckKey(dg.AssetKey(asset), check if check in _SEPARATE else MATERIALIZATION_ERRORS)


class Watcher:
    """The sensor over the raw root, ticked by hand: what a tick asks for is applied as the daemon would."""

    def __init__(self, instance: dg.DagsterInstance, settings: Settings) -> None:
        self._instance = instance
        self.settings = settings
        self.cursor: str | None = None
        self.observed: list[str] = []
        """Keys that were reported as new or changed, in order."""
        self.versions: dict[str, str] = {}
        """The content version that was reported last, by key."""
        self.run_keys: list[str | None] = []
        """Of all runs requested so far."""
        self.ranges: list[tuple[str, str]] = []
        """First and last shard of each run that the last tick has requested."""

    def tick(self) -> str:
        """One look; gives what it says. Errors of the sensor come through."""
        sensor = definitions_of(self.settings).get_sensor_def("raw_shard_sensor")
        self.ranges = []
        with dg.build_sensor_context(instance=self._instance, cursor=self.cursor) as context:
            result = sensor(context)
        if isinstance(result, dg.SkipReason):
            return result.skip_message or ""
        assert isinstance(result, dg.SensorResult)
        delete_partitions(result, self._instance)
        for event in result.asset_events:
            self._instance.report_runless_asset_event(event)
            self.observed.append(str(event.partition))
            self.versions[str(event.partition)] = (event.tags or {})["dagster/data_version"]
        self.cursor = result.cursor
        for request in result.run_requests or ():
            self.run_keys.append(request.run_key)
            self.ranges.append((request.tags[RANGE_START], request.tags[RANGE_END]))
        return result.skip_reason.skip_message or "" if result.skip_reason else ""

    def requested(self) -> list[str]:
        """One look; every shard of the runs that it requests."""
        self.tick()
        registered = list(self._instance.get_dynamic_partitions(SHARDS))
        return [
            key
            for first, last in self.ranges
            for key in registered[registered.index(first) : registered.index(last) + 1]
        ]


def files(folder: Path) -> dict[str, bytes]:
    """Content of every file below ``folder``, by its path in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
