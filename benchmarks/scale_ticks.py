"""Cost of evaluations in a fresh process: ticks of the sensor, the nightly schedule, the report."""

import shutil
from pathlib import Path
from typing import Any

from benchmarks.scale_data import cursor_of
from benchmarks.scale_world import Figure, World, memory_figures
from interleaved_assets.pipeline.raw.snapshot import read_snapshot, write_snapshot

TICK_SECONDS, TICK_MIB = 5, 200
TIMES_MORE = 10
CHANGED, STALE = 400, 500


def sensor(world: World) -> list[Figure]:
    """A tick of ``raw_shard_sensor``: the very first one, without new shards, and with changed ones."""
    figures = []
    if not (world.sources or world.is_finished):
        first = world.probe("sensor")
        assert first["evaluations"][0]["requested"], "new shards were not requested"
        figures = [
            Figure("very first tick: new shards are registered and requested", _longest(first), "s"),
            *memory_figures(first, "that tick"),
        ]
    keys = world.registered()
    settings = world.settings
    quiet = quiet_ticks(world.probe("sensor", "--cursor", cursor_of(settings), "--times", "3"), world.shards)
    changed = keys[:: max(1, len(keys) // CHANGED)][:CHANGED]
    before = cursor_of(settings)
    seen = read_snapshot(settings.storage, before)
    cursor = write_snapshot(
        seen | {key: seen[key]._replace(handled="other") for key in changed}, seen, settings.storage, before
    )
    changed_tick = world.probe("sensor", "--cursor", cursor)
    write_snapshot(seen, seen, settings.storage, cursor)
    assert changed_tick["evaluations"][0]["requested"], "changed shards were not requested"
    return [
        *figures,
        *quiet,
        Figure(f"tick with {len(changed)} changed shards", _longest(changed_tick), "s"),
        *memory_figures(changed_tick, "this tick"),
    ]


def many(world: World) -> list[Figure]:
    """The same with ten times as many files, in an instance of their own."""
    more = World(world.work / "many", "sqlite", TIMES_MORE * world.shards)
    try:
        first = more.probe("sensor")["evaluations"][0]
        assert first["events"] == min(more.settings.watch.max_per_tick, more.shards), first
        shutil.rmtree(more.settings.storage.output_root)  # the snapshot of that tick
        more.registered()
        quiet = more.probe("sensor", "--cursor", cursor_of(more.settings), "--times", "3")
        return [
            Figure("very first tick, no snapshot yet", first["seconds"], "s"),
            Figure("memory of the whole process in that tick", first["peak_mib"], "MiB"),
            *(
                figure._replace(target=None)  # what is promised of so many is that they are listed at all
                for figure in quiet_ticks(quiet, more.shards)
            ),
        ]
    finally:
        shutil.rmtree(more.work)


def nightly(world: World) -> list[Figure]:
    """An evaluation of ``nightly``: all records compared with the present settings, code and raw shards."""
    keys = world.finished()
    figures = quiet_night(world.probe("nightly", "--times", "2"))
    stale = keys[:: max(1, len(keys) // STALE)][:STALE]
    records = [Path(world.settings.storage.shard(key).record("final_tars")) for key in stale]
    taken = {path: path.read_bytes() for path in records}
    try:
        for path in taken:
            path.unlink()
        probed = world.probe("nightly")
    finally:
        for path, content in taken.items():
            path.write_bytes(content)
    return [
        *figures,
        Figure(f"evaluation, {len(stale)} stale, scattered", _longest(probed), "s"),
        Figure("runs it requests", probed["evaluations"][0]["requested"], ""),
    ]


def report(world: World) -> list[Figure]:
    """A run of ``dataset_report`` over all shards."""
    world.finished()
    probed = world.probe("report")
    return [Figure("a run of it", _longest(probed), "s"), *memory_figures(probed, "the run")]


def quiet_ticks(probed: dict[str, Any], shards: int) -> list[Figure]:
    """Figures of ticks that found nothing new."""
    for evaluation in probed["evaluations"]:
        assert evaluation["said"] == f"{shards:,} unchanged", evaluation
    return [
        Figure("longest of three ticks without changes", _longest(probed), "s", TICK_SECONDS),
        *memory_figures(probed, "a tick", TICK_MIB),
    ]


def quiet_night(probed: dict[str, Any]) -> list[Figure]:
    """Figures of evaluations of the schedule that found nothing stale."""
    for evaluation in probed["evaluations"]:
        assert evaluation["requested"] == 0, evaluation
        assert "are current" in evaluation["said"], evaluation
    return [
        Figure("evaluation, nothing stale", _longest(probed), "s"),
        Figure("processor time of it", max(each["cpu_seconds"] for each in probed["evaluations"]), "s"),
        *memory_figures(probed, "an evaluation"),
    ]


def _longest(probed: dict[str, Any]) -> float:
    return max(float(evaluation["seconds"]) for evaluation in probed["evaluations"])
