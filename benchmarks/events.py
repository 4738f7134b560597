"""Bytes and seconds that a shard costs Dagster's storage: one chain of runs over new shards, and the same again.

    python -m benchmarks.events --work build/events --demo
    python -m benchmarks.events --work build/events --shards 1000 --storage postgres --profile 25

Runs work in this process, ``run.shards_per_run`` shards each, without a daemon. What lies in the folder is deleted
unless ``--keep`` is given.
"""

import argparse
import cProfile
import json
import os
import pstats
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._serdes import serialize_value

from benchmarks.scale_data import contents, register_all, write_settings, write_shards
from benchmarks.scale_services import ROOT, environment, postgres, postmaster_of, server_cpu
from benchmarks.scale_world import INSTANCE_FILES
from interleaved_assets.defs.build import build_definitions
from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.defs.requests import BRING_UP_TO_DATE, RANGE_END, RANGE_START
from interleaved_assets.demo.shards import write_demo_shards
from interleaved_assets.model.errors import InterleavedError
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings

QUIETLY = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
PLANNED = ("ASSET_MATERIALIZATION_PLANNED", "ASSET_CHECK_EVALUATION_PLANNED")
"""Events that Dagster stores itself when a run is created."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder to work in; must not exist, or be empty")
    parser.add_argument("--demo", action="store_true", help="the demo shards instead of small ones")
    parser.add_argument("--shards", type=int, default=1000, help="small shards (default 1000)")
    parser.add_argument("--storage", choices=sorted(INSTANCE_FILES), default="sqlite", help="Dagster's storage")
    parser.add_argument("--profile", type=int, default=0, help="lines of the profile of the first runs (default none)")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--keep", action="store_true", help="leave the folder as it is at the end")
    arguments = parser.parse_args()
    if arguments.work.is_dir() and any(arguments.work.iterdir()):
        parser.error(f"{arguments.work} is not empty")
    work = arguments.work.resolve()
    home = work / "home"
    home.mkdir(parents=True)
    server: Mapping[str, str] = {}
    try:
        with ExitStack() as stack:
            if arguments.storage == "postgres":
                stack.enter_context(environment(server := stack.enter_context(postgres())))
            shutil.copy(ROOT / INSTANCE_FILES[arguments.storage], home / "dagster.yaml")
            settings = write_settings(work)
            if arguments.demo:
                write_demo_shards(Path(settings.storage.raw_root))
            else:
                write_shards(work / "raw", contents(work / "tars"), range(arguments.shards))
            stack.enter_context(environment({"DAGSTER_HOME": str(home)}))
            instance = stack.enter_context(dg.DagsterInstance.from_config(str(home)))
            register_all(instance, settings)
            bare = write_settings(work / "bare", raw_root=settings.storage.raw_root)
            found: dict[str, dict[str, Any]] = {}
            queueing = queued(instance, settings, server)
            for shards, lines in (("new shards", arguments.profile), ("the same shards again, unchanged", 0)):
                alone = {"seconds a shard and asset, stage functions alone": seconds_alone(instance, bare)}
                found[shards] = alone | measured(instance, home, settings, server, lines)
            print(table(found))
            for name, value in queueing.items():
                print(f"queueing a run, {name}: {value:.4f}")
            if arguments.json:
                arguments.json.write_text(json.dumps(found | {"queueing": queueing}, indent=1))
    finally:
        if not arguments.keep:
            shutil.rmtree(work, ignore_errors=True)


def measured(
    instance: dg.DagsterInstance, home: Path, settings: Settings, server: Mapping[str, str], profile_lines: int
) -> dict[str, Any]:
    """Runs over every registered shard: for each shard its events and their bytes, the growth of the storage in bytes
    and CPU seconds, and for each shard and asset the seconds. ``server`` names PostgreSQL's server, where it is used.
    """
    keys = instance.get_dynamic_partitions(SHARDS)
    postmaster = postmaster_of(server) if server else None
    cpu, database_cpu = time.process_time(), server_cpu(postmaster) if postmaster else 0.0
    before, started = stored_bytes(instance, home), time.perf_counter()
    profile = cProfile.Profile() if profile_lines else None
    with profile or nullcontext():
        runs = list(run_all(instance, settings, keys))
    seconds = time.perf_counter() - started
    cpu = time.process_time() - cpu
    if postmaster:
        database_cpu = server_cpu(postmaster) - database_cpu
    growth = stored_bytes(instance, home) - before
    if profile:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(profile_lines)
        pstats.Stats(profile).sort_stats("tottime").print_stats(profile_lines)
    number, size, entries = Counter[str](), Counter[str](), Counter[str]()
    for run in runs:
        for entry in instance.all_logs(run):
            event = entry.dagster_event
            of_shards = event and (event.asset_key or event.event_type_value.startswith("ASSET_CHECK"))
            kind = event.event_type_value if event and of_shards else "others of the run"
            number[kind] += 1
            size[kind] += len(serialize_value(entry))
            if event and event.event_type is dg.DagsterEventType.ASSET_MATERIALIZATION:
                for name, value in event.materialization.metadata.items():
                    entries[f"{event.asset_key.path[-1]}.{name}"] += len(serialize_value(value)) + len(name)
    own = sum(count for kind, count in size.items() if kind not in PLANNED)
    return {
        "seconds a shard and asset": seconds / len(keys) / len(stage_dag(settings)),
        "CPU seconds a shard": cpu / len(keys),
        "CPU seconds a shard, PostgreSQL": database_cpu / len(keys),
        "bytes of events a shard": own / len(keys),
        "bytes of storage a shard": growth / len(keys),
        "events a shard": {kind: count / len(keys) for kind, count in number.most_common()},
        "bytes a shard by event": {kind: count / len(keys) for kind, count in size.most_common()},
        "bytes a shard by metadata": {name: count / len(keys) for name, count in entries.most_common(40)},
    }


def queued(instance: dg.DagsterInstance, settings: Settings, server: Mapping[str, str]) -> dict[str, float]:
    """What it takes to put runs over every registered shard into the queue, as the daemon does for a backfill: Dagster
    stores an event for each shard and asset. The runs are deleted again.
    """
    keys = instance.get_dynamic_partitions(SHARDS)
    job = build_definitions(settings).resolve_implicit_global_asset_job_def()
    assets = frozenset(map(dg.AssetKey, stage_dag(settings)))
    postmaster = postmaster_of(server) if server else None
    database_cpu = server_cpu(postmaster) if postmaster else 0.0
    cpu, started, runs = time.process_time(), time.perf_counter(), []
    for some in in_runs(keys, settings):
        tags = {RANGE_START: some[0], RANGE_END: some[-1]}
        runs.append(instance.create_run_for_job(job, asset_selection=assets, tags=tags).run_id)
    figures = {"seconds a shard": time.perf_counter() - started, "CPU seconds a shard": time.process_time() - cpu}
    if postmaster:
        figures["CPU seconds a shard, PostgreSQL"] = server_cpu(postmaster) - database_cpu
    for run in runs:
        instance.delete_run(run)
    return {name: value / len(keys) for name, value in figures.items()}


def in_runs(keys: Sequence[str], settings: Settings) -> Iterator[Sequence[str]]:
    """The shards of each run."""
    for start in range(0, len(keys), settings.run.shards_per_run):
        yield keys[start : start + settings.run.shards_per_run]


def seconds_alone(instance: dg.DagsterInstance, settings: Settings) -> float:
    """Seconds for each shard and asset of the stage functions over every registered shard, one call after another."""
    keys, stages = instance.get_dynamic_partitions(SHARDS), stage_dag(settings).values()
    started = time.perf_counter()
    for key in keys:
        with suppress(InterleavedError):  # a damaged shard fails at its first stage, and takes part in no other
            for stage in stages:
                take_through(stage, key, settings)
    return (time.perf_counter() - started) / len(keys) / len(stages)


def run_all(instance: dg.DagsterInstance, settings: Settings, keys: Sequence[str]) -> Iterator[str]:
    """One run of all stages after another, ``run.shards_per_run`` shards each; gives their ids."""
    job = build_definitions(settings).resolve_job_def(BRING_UP_TO_DATE)
    for some in in_runs(keys, settings):
        tags = {RANGE_START: some[0], RANGE_END: some[-1]}
        result = job.execute_in_process(run_config=QUIETLY, instance=instance, tags=tags, raise_on_error=False)
        yield result.run_id


def stored_bytes(instance: dg.DagsterInstance, home: Path) -> int:
    """Bytes of Dagster's storage: of the database of PostgreSQL, or of all files below the instance's folder."""
    if "DAGSTER_PG_HOST" in os.environ:
        with instance.event_log_storage.index_connection() as connection:  # type: ignore[attr-defined]
            return int(connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar())
    return sum(path.stat().st_size for path in home.rglob("*") if path.is_file())


def table(found: dict[str, dict[str, Any]]) -> str:
    """The figures as Markdown, shards as columns."""
    lines = [f"| | {' | '.join(found)} |", "|---|" + "---|" * len(found)]
    first = next(iter(found.values()))
    show: Callable[[float], str] = lambda value: f"{value:.3f}" if value < 10 else f"{value:,.0f}"  # noqa: E731
    for name, value in first.items():
        if not isinstance(value, dict):
            lines.append(f"| {name} | {' | '.join(show(figures[name]) for figures in found.values())} |")
            continue
        for part in dict.fromkeys(part for figures in found.values() for part in figures[name]):
            cells = " | ".join(show(figures[name].get(part, 0)) for figures in found.values())
            lines.append(f"| {name}: {part} | {cells} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
