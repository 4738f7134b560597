"""Shards on a Ray cluster of several nodes on this machine: a lost node, scaling, and what each part costs.

    python -m benchmarks.cluster --shards 1000 --nodes 1,2,4 --kill

For each number of nodes (one CPU each) a new cluster takes the shards through all stages in one run, with PostgreSQL as
the storage of Dagster; with ``--kill``, one more run loses a node in the middle. The outputs of every run are compared
with those of the stage functions in this process. CPU seconds are counted for this process (the step and the events),
for PostgreSQL, and for an empty task; they vary less than elapsed time on a busy machine.
"""

import argparse
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dagster import AssetKey, DagsterInstance

from benchmarks.scale_data import contents, shard_name, write_settings, write_shards
from benchmarks.scale_services import ROOT, environment, postgres, postmaster_of, server_cpu, server_processes
from benchmarks.scale_world import Figure
from interleaved_assets.defs.build import build_definitions
from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.defs.requests import RANGE_END, RANGE_START
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.ray import on_cluster
from interleaved_assets.pipeline.run.shard_map import Task
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings
from interleaved_assets.settings.sections import RunSettings
from interleaved_assets_tests.deploy.ray_cluster import RayCluster, ray_cluster, wait_for

_SETTINGS: Final = {
    "INTERLEAVED_RUN__EXECUTOR": "ray",
    "INTERLEAVED_RUN__SHARDS_PER_RUN": "10000",
}
_EMPTY_TASKS = 300
_OUTPUTS = (*stage_dag(Settings()), "tars", "dropped", "sample_scores")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=1000, help="default 1000")
    parser.add_argument("--nodes", default="1,2,4", help="numbers of nodes, default 1,2,4; may be empty")
    parser.add_argument("--kill", action="store_true", help="also a run on two nodes of which one is killed")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="cluster-"))
    try:
        for figure in measure(
            work, options.shards, [int(count) for count in options.nodes.split(",") if count], options.kill
        ):
            print(f"| {figure.what} | {figure.value:.4g} {figure.unit} |", flush=True)
    finally:
        shutil.rmtree(work)
    print(f"load {os.getloadavg()[0]:.1f}")


def measure(work: Path, shards: int, nodes: Sequence[int], kill: bool) -> Iterator[Figure]:
    """The figures of all runs; stops at a run whose outputs are not those of the stage functions."""
    home = work / "home"
    home.mkdir()
    shutil.copy(ROOT / "deploy/postgres/dagster.yaml", home / "dagster.yaml")
    write_shards(work / "raw", contents(work / "tars"), range(shards))
    keys = [shard_name(number) for number in range(shards)]
    alone = write_settings(work, output_root="alone")
    started = time.process_time()
    for stage in stage_dag(alone).values():
        for key in keys:
            take_through(stage, key, alone)
    yield Figure("stage functions, CPU of a shard", (time.process_time() - started) / shards, "s")
    settings = [*((count, False) for count in nodes), *([(2, True)] if kill else [])]
    with postgres() as server, environment(server):
        for number, (count, is_killed) in enumerate(settings):
            with environment(_SETTINGS), joined(work, count) as cluster:
                here = write_settings(work, output_root=f"out-{number}")
                label = f"{count} nodes, one killed in the middle" if is_killed else f"{count} nodes"
                with DagsterInstance.from_config(str(home)) as instance:
                    yield from run(instance, cluster, here, keys, label, is_killed, postmaster_of(server))
                different = differences(work / "alone", work / f"out-{number}")
                assert not different, different[:10]


class joined:  # noqa: N801  a context manager
    """A cluster of so many nodes that this process has joined."""

    def __init__(self, work: Path, nodes: int) -> None:
        hidden = work / "hidden"
        hidden.mkdir(exist_ok=True)
        self._nodes = nodes
        self._context = ray_cluster(ROOT / "deploy/ray/start.sh", hidden, {})

    def __enter__(self) -> RayCluster:
        cluster = self._context.__enter__()
        started = time.monotonic()
        os.environ.update(cluster.environment)
        cluster.join(log_to_driver=False)
        import ray

        for _ in range(self._nodes):
            cluster.add_node()
        wait_for(lambda: ray.cluster_resources().get("CPU") == self._nodes, "the nodes", 600)
        print(f"{self._nodes} nodes after {time.monotonic() - started:.1f} s", file=sys.stderr)
        return cluster

    def __exit__(self, *error: object) -> None:
        import ray

        ray.shutdown()
        self._context.__exit__(None, None, None)


def run(
    instance: DagsterInstance,
    cluster: RayCluster,
    settings: Settings,
    keys: Sequence[str],
    label: str,
    kill: bool,
    postmaster: int,
) -> Iterator[Figure]:
    """One run of all stages over ``keys``."""

    def nothing(task: Task) -> Iterator[tuple[str, int]]:
        for key in task.keys:
            yield key, 0

    cpu, wall = time.process_time(), time.monotonic()
    first = None
    for arrival in on_cluster(
        nothing,
        [str(number) for number in range(_EMPTY_TASKS)],
        "nothing",
        RunSettings(),
        together=False,
        gpu=False,
    ):
        first = first or (time.monotonic() - wall if arrival else None)
    yield Figure(f"{label}: from the call to the first result, empty task", first or 0, "s")
    yield Figure(f"{label}: CPU of this process for a task", (time.process_time() - cpu) / _EMPTY_TASKS, "s")
    yield Figure(f"{label}: empty tasks", _EMPTY_TASKS / (time.monotonic() - wall), "/s")

    instance.add_dynamic_partitions(SHARDS, list(keys))
    job = build_definitions(settings).resolve_implicit_global_asset_job_def()
    assets = [AssetKey(name) for name in stage_dag(settings)]
    tags = {RANGE_START: keys[0], RANGE_END: keys[-1]}
    cpu, database = time.process_time(), server_cpu(postmaster)
    planned = instance.create_run_for_job(job, asset_selection=frozenset(assets), tags=tags)
    per_shard = 1 / len(keys)
    yield Figure(
        f"{label}: queueing a run, CPU of the daemon for a shard", (time.process_time() - cpu) * per_shard, "s"
    )
    yield Figure(
        f"{label}: queueing a run, CPU of PostgreSQL for a shard", (server_cpu(postmaster) - database) * per_shard, "s"
    )
    instance.delete_run(planned.run_id)

    if kill:
        threading.Thread(target=_kill_in_the_middle, args=(cluster, settings, len(keys)), daemon=True).start()
    cpu, database, wall = time.process_time(), server_cpu(postmaster), time.monotonic()
    quiet = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
    result = job.execute_in_process(instance=instance, asset_selection=assets, tags=tags, run_config=quiet)
    assert result.success
    for name in stage_dag(settings):
        assert instance.get_materialized_partitions(AssetKey(name)) >= set(keys), name
    yield Figure(f"{label}: the run", time.monotonic() - wall, "s")
    yield Figure(f"{label}: shards through all stages", len(keys) / (time.monotonic() - wall) * 60, "/min")
    yield Figure(f"{label}: CPU of the run's process for a shard", (time.process_time() - cpu) * per_shard, "s")
    yield Figure(f"{label}: CPU of PostgreSQL for a shard", (server_cpu(postmaster) - database) * per_shard, "s")
    yield Figure(f"{label}: connections to PostgreSQL", len(server_processes(postmaster)), "processes")
    for name in stage_dag(settings):
        instance.wipe_assets([AssetKey(name)])


def _kill_in_the_middle(cluster: RayCluster, settings: Settings, shards: int) -> None:
    folder = Path(settings.storage.output_root) / "records/image_scores"
    while not folder.exists() or sum(1 for _ in folder.rglob("*.json")) < shards // 2:
        time.sleep(0.2)
    cluster.kill_node(next(iter(cluster.nodes)))


def differences(one: Path, other: Path) -> list[str]:
    """Paths of outputs that are not the same in both trees."""
    found = []
    for top in _OUTPUTS:
        paths = {path.relative_to(folder) for folder in (one, other) for path in (folder / top).rglob("*.*")}
        for path in sorted(paths):
            a, b = one / path, other / path
            if not a.is_file() or not b.is_file() or a.read_bytes() != b.read_bytes():
                found.append(str(path))
    return found


if __name__ == "__main__":
    main()
