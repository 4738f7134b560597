"""Work of the daemon with many shards: shards that land at once, the start of a large backfill, a whole backfill."""

import re
import time
from collections.abc import Sequence
from typing import Any

from dagster import AssetKey, DagsterRunStatus, RunsFilter

from benchmarks.scale_data import (
    cursor_of,
    observed,
    shard_name,
    store,
    variants,
    write_first_snapshot,
    write_settings,
    write_shards,
)
from benchmarks.scale_services import Dagster, wait_for
from benchmarks.scale_ticks import TICK_SECONDS
from benchmarks.scale_world import Figure, World
from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets_tests.live import LAUNCH

ARRIVING, TO_THE_END = 2000, 300
SECONDS_A_SHARD_AND_ASSET = 0.3
PATIENCE_S = 1800
FIRST_ARRIVING, FIRST_TO_THE_END = 500_000, 600_000
"""Numbers of shards that no other measurement uses."""

SENSOR = {
    "repositoryName": "__repository__",
    "repositoryLocationName": "interleaved_assets",
    "sensorName": "raw_shard_sensor",
}
SET_CURSOR = """
mutation ($sensor: SensorSelector!, $cursor: String) {
  setSensorCursor(sensorSelector: $sensor, cursor: $cursor) { __typename ... on PythonError { message } }
}"""
START = """
mutation ($sensor: SensorSelector!) {
  startSensor(sensorSelector: $sensor) { __typename ... on PythonError { message } }
}"""
STOP = """
mutation ($id: String!) { stopSensor(id: $id) { __typename ... on PythonError { message } } }"""
SENSOR_ID = """
query ($sensor: SensorSelector!) { sensorOrError(sensorSelector: $sensor) { ... on Sensor { id } } }"""
TICKS = """
query ($sensor: SensorSelector!) {
  sensorOrError(sensorSelector: $sensor) { ... on Sensor {
    sensorState { ticks(limit: 200) { timestamp endTimestamp status skipReason } }
  } }
}"""
CANCEL = "mutation ($id: String!) { cancelPartitionBackfill(backfillId: $id) { __typename } }"
STATUS = """
query ($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status } } }"""


def arrivals(world: World) -> list[Figure]:
    """2,000 new shards at once, with a tick every 5 s: until all are registered and observed."""
    known = world.registered()
    numbers = range(FIRST_ARRIVING, FIRST_ARRIVING + ARRIVING)
    with world.dagster() as services, services.instance() as instance:
        services.ask(SET_CURSOR, sensor=SENSOR, cursor=cursor_of(world.settings))
        services.ask(START, sensor=SENSOR)
        quiet = wait_for(lambda: len(found := _ended_ticks(services)) >= 3 and found, 120, "three ticks")
        memory = services.memory("code-server")
        idle = memory.peak()
        write_shards(world.raw, world.tars, numbers)
        landed = time.time()
        busy = wait_for(lambda: _ticks_until_quiet(services, landed), PATIENCE_S, "the end of the new shards' ticks")
        services.ask(STOP, id=services.ask(SENSOR_ID, sensor=SENSOR)["sensorOrError"]["id"])
        registered = instance.get_dynamic_partitions(SHARDS)
        assert len(registered) == len(known) + ARRIVING, len(registered)
        seconds = [tick["endTimestamp"] - tick["timestamp"] for tick in busy]
        figures = [
            Figure(
                "tick without changes, as the daemon counts it",
                max(tick["endTimestamp"] - tick["timestamp"] for tick in quiet),
                "s",
                TICK_SECONDS,
            ),
            Figure("memory of the code server after such ticks", idle, "MiB"),
            Figure(f"ticks that {ARRIVING} new shards take", len(busy), ""),
            Figure("longest of these ticks", max(seconds), "s"),
            Figure("these ticks, for each new shard", 1000 * sum(seconds) / ARRIVING, "ms"),
            Figure("until all are registered and observed", busy[-1]["endTimestamp"] - landed, "s"),
            Figure("memory of the code server, at its peak", memory.peak(), "MiB"),
        ]
        for number in numbers:
            (world.raw / f"{shard_name(number)}.tar").unlink()
        for key in set(registered) - set(known):
            instance.delete_dynamic_partition(SHARDS, key)
    write_first_snapshot(world.settings)
    return figures


def backfill(world: World) -> list[Figure]:
    """A backfill of every shard through all stages: until its first runs work; then it is cancelled."""
    keys = world.registered()
    with world.dagster() as services, services.instance() as instance:
        started = time.perf_counter()
        backfill_id = _launch(services, world, keys)
        launched = time.perf_counter()
        of_backfill = {"dagster/backfill": backfill_id}
        wait_for(lambda: instance.get_runs_count(RunsFilter(tags=of_backfill)), PATIENCE_S, "the first run")
        first = time.perf_counter()
        under_way = RunsFilter(tags=of_backfill, statuses=[DagsterRunStatus.STARTED, DagsterRunStatus.SUCCESS])
        wait_for(lambda: instance.get_runs_count(under_way), PATIENCE_S, "the first run's start")
        working = time.perf_counter()
        queued = instance.get_runs_count(RunsFilter(tags=of_backfill))
        daemon = services.memory("daemon").peak()
        cancelling = time.perf_counter()
        services.ask(CANCEL, id=backfill_id)
        wait_for(lambda: _status(services, backfill_id) == "CANCELED", PATIENCE_S, "the end of the backfill")
        cancelled = time.perf_counter()
        submitted = [record.create_timestamp for record in instance.get_run_records(RunsFilter(tags=of_backfill))]
    between = (max(submitted) - min(submitted)).total_seconds() / max(1, len(submitted) - 1)
    return [
        Figure(f"mutation, {len(keys)} shards × {len(stage_dag(world.settings))} assets", launched - started, "s"),
        Figure("until its first run is queued", first - launched, "s"),
        Figure("until its first run works", working - launched, "s"),
        Figure(f"from one run of {world.settings.run.shards_per_run} shards to the next in the queue", between, "s"),
        Figure("memory of the daemon, at its peak", daemon, "MiB"),
        Figure(f"from cancelling to cancelled, {queued} runs queued", cancelled - cancelling, "s"),
    ]


def cost(world: World) -> list[Figure]:
    """A whole backfill of a few hundred shards; and the same work without Dagster."""
    known = world.registered()
    numbers = range(FIRST_TO_THE_END, FIRST_TO_THE_END + TO_THE_END)
    write_shards(world.raw, world.tars, numbers)
    sources = write_first_snapshot(world.settings)
    keys = [key for key in sources if key not in world.sources]
    assert len(keys) == TO_THE_END
    steps = len(keys) * len(stage_dag(world.settings))
    with world.dagster() as services, services.instance() as instance:
        instance.add_dynamic_partitions(SHARDS, keys)
        store(instance, (observed(key, sources[key]) for key in keys))
        started = time.perf_counter()
        backfill_id = _launch(services, world, keys)
        status = wait_for(
            lambda: (found := _status(services, backfill_id)).startswith("COMPLETED") and found, PATIENCE_S, "its end"
        )
        wall = time.perf_counter() - started
        assert status == "COMPLETED_SUCCESS", status
        for name in stage_dag(world.settings):
            assert set(keys) <= instance.get_materialized_partitions(AssetKey(name)), name
        for key in keys:
            instance.delete_dynamic_partition(SHARDS, key)
    for number in numbers:
        (world.raw / f"{shard_name(number)}.tar").unlink()
    write_first_snapshot(world.settings)
    work = _without_dagster(world)
    return [
        Figure(f"backfill of {len(keys)} shards among {len(known)}, launch to end", wall, "s"),
        Figure("for each shard and asset", wall / steps, "s", SECONDS_A_SHARD_AND_ASSET),
        Figure("the same work without Dagster, for each shard and asset", work, "s"),
    ]


def _without_dagster(world: World) -> float:
    """Seconds for a shard and a stage, the variants one after another."""
    settings = write_settings(world.work / "plain")
    keys = [path.stem for path in variants(world.work / "plain" / "raw")]
    started = time.perf_counter()
    for stage in stage_dag(settings).values():
        for key in keys:
            take_through(stage, key, settings)
    return (time.perf_counter() - started) / len(keys) / len(stage_dag(settings))


def _launch(services: Dagster, world: World, keys: Sequence[str]) -> str:
    assets = [{"path": [name]} for name in stage_dag(world.settings)]
    answer = services.ask(LAUNCH, assets=assets, partitions=list(keys))["launchPartitionBackfill"]
    assert answer["__typename"] == "LaunchBackfillSuccess", answer
    return str(answer["backfillId"])


def _status(services: Dagster, backfill_id: str) -> str:
    return str(services.ask(STATUS, id=backfill_id)["partitionBackfillOrError"]["status"])


def _ended_ticks(services: Dagster) -> list[dict[str, Any]]:
    """Oldest first."""
    found = services.ask(TICKS, sensor=SENSOR)["sensorOrError"]["sensorState"]["ticks"]
    failed = [tick for tick in found if tick["status"] == "FAILURE"]
    assert not failed, failed
    return [tick for tick in reversed(found) if tick["status"] != "STARTED"]


def _ticks_until_quiet(services: Dagster, since: float) -> list[dict[str, Any]]:
    """The ticks since then that reported shards; none while there may be more."""
    ticks = [tick for tick in _ended_ticks(services) if tick["timestamp"] > since]
    busy = [tick for tick in ticks if not _found_nothing(tick)]
    return busy if busy and _found_nothing(ticks[-1]) else []


def _found_nothing(tick: dict[str, Any]) -> bool:
    return re.fullmatch(r"[\d,]+ unchanged", str(tick["skipReason"])) is not None
