"""Runs whose shards go to a Ray cluster: nodes that share a bucket with the process of the run, and no folder."""

import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from interleaved_assets.defs.build import build_definitions
from interleaved_assets.defs.demo import register_all
from interleaved_assets.defs.requests import RANGE_END, RANGE_START
from interleaved_assets.demo.shards import demo_shards
from interleaved_assets.io.rows.processors import processors
from interleaved_assets.model.errors import ClusterUnavailable, ShardTimeout, WorkerLost
from interleaved_assets.pipeline.run.ray import on_cluster
from interleaved_assets.pipeline.run.shard_map import Task, each
from interleaved_assets.pipeline.run.stage import ShardResult
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.scoring.protocol.registry import unregister_scorer
from interleaved_assets.settings import PluginSettings, Settings, load_settings
from interleaved_assets.settings.sections import RunSettings
from interleaved_assets_tests.defs.runs import STAGES, materialized, run_chain
from interleaved_assets_tests.deploy.ray_cluster import RayCluster, ray_cluster, wait_for
from interleaved_assets_tests.documents import document, good_shard, sharp_image, write_shard
from interleaved_assets_tests.s3 import S3Server

pytestmark = pytest.mark.system
REPOSITORY = Path(__file__).parents[2]
MODELS = REPOSITORY / "data/models"
PLUGIN = "interleaved_assets_tests.deploy.slow_scorer"
SETTINGS = """
[plugins]
modules = ["interleaved_assets_tests.deploy.slow_scorer"]
[storage]
raw_root = "s3://{bucket}/raw"
output_root = "s3://{bucket}/{out}"
[scoring]
scorers = ["sharpness", "qr", "slow"]
[run]
executor = "{executor}"
max_shard_seconds = 15
"""
LIMIT_S = 15
CPU: Any = {"together": False, "gpu": False, "run": RunSettings(max_shard_seconds=60)}
GPU: Any = {**CPU, "together": True, "gpu": True}
# A run as a process of its own, which Dagster ends by SIGINT.
RUN = """
import sys
import dagster as dg
from interleaved_assets.defs.build import build_definitions
from interleaved_assets.settings import load_settings
from interleaved_assets_tests.defs.runs import run_chain

with dg.DagsterInstance.ephemeral() as instance:
    print(run_chain(instance, load_settings(sys.argv[1]), sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the process of the run, which no node sees."""
    return tmp_path_factory.mktemp("launcher")


@pytest.fixture(scope="module")
def cluster(deploy_folder: Path, s3_server: S3Server, launcher: Path) -> Iterator[RayCluster]:
    """A head, a node with a CPU, and a node with a CPU and a logical GPU; this process has joined it."""
    storage = {**s3_server.environment, "AWS_DEFAULT_REGION": "us-east-1"}
    with (
        ray_cluster(deploy_folder / "ray/start.sh", launcher, storage) as running,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in {**storage, **running.environment}.items():
            patch.setenv(name, value)
        running.join()
        import ray

        try:
            running.add_node()
            running.add_node("--num-gpus=1")
            wait_for(lambda: free_cpus() == 2, "two nodes")
            yield running
        finally:
            ray.shutdown()


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    return s3_server.new_bucket()


@pytest.fixture(scope="module", autouse=True)
def plugin_unloaded() -> Iterator[None]:
    yield
    if sys.modules.pop(PLUGIN, None):
        unregister_scorer("slow")


def settings_of(launcher: Path, bucket: str, executor: str = "ray", out: str = "out") -> Settings:
    file = launcher / f"{out}.toml"
    file.write_text(SETTINGS.format(bucket=bucket, executor=executor, out=out), encoding="utf-8")
    return load_settings(file)


def free_cpus() -> float:
    import ray

    return float(ray.available_resources().get("CPU", 0))


def by_key(results: Iterator[ShardResult[object] | None]) -> dict[str, ShardResult[object]]:
    found = [one for one in results if one is not None]
    assert len({one.key for one in found}) == len(found)
    return {one.key: one for one in found}


def test_each_shard_has_its_result_its_error_or_the_time_limit(cluster: RayCluster) -> None:
    class Unpicklable(Exception):
        def __init__(self, one: str, two: str) -> None:
            super().__init__(one)

    def take(key: str) -> object:
        if key == "hanging":  # and keeps the interpreter lock, so that no other thread of its worker goes on
            re.fullmatch("(a*)*b", "a" * 99)
        if key == "failing":
            raise Unpicklable("odd", "even")
        return threading.Lock() if key == "unsendable" else key.upper()

    def work(task: Task) -> Iterator[tuple[str, object]]:
        return each(take, task)

    keys = ["a", "failing", "unsendable", "hanging", "b"]
    found = by_key(on_cluster(work, keys, "work", **{**CPU, "run": RunSettings(max_shard_seconds=4)}))
    assert (found["a"].result, found["b"].result) == ("A", "B")
    assert {found[key].host for key in keys} <= set(cluster.nodes)
    assert str(found["failing"].result) == "Unpicklable: odd"
    assert str(found["unsendable"].result).startswith(
        "shard unsendable: the result of work cannot be sent from its worker: TypeError: cannot pickle '_thread.lock'"
    )
    assert isinstance(found["hanging"].result, ShardTimeout)
    assert "shard hanging: work was stopped because it took longer than run.max_shard_seconds = 4" in str(
        found["hanging"].result
    )
    # the worker was killed: the cluster has its CPUs back
    wait_for(lambda: free_cpus() == 2, "two free CPUs")


def test_a_task_on_a_cpu_has_its_share_of_the_processors_of_its_node(cluster: RayCluster) -> None:
    def work(task: Task) -> Iterator[tuple[str, object]]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "sched_getaffinity", lambda _: set(range(8 * (os.cpu_count() or 1))))
            yield task.keys[0], processors()

    assert by_key(on_cluster(work, ["a"], "work", **CPU))["a"].result == 8


def test_a_device_takes_its_shards_together_and_a_shard_that_ends_workers_fails_alone(cluster: RayCluster) -> None:
    def work(task: Task) -> Iterator[tuple[str, object]]:
        for key in task.keys:
            if key == "deadly":
                os._exit(1)
            yield key, (os.getpid(), os.environ["CUDA_VISIBLE_DEVICES"], len(task.keys))

    found = by_key(on_cluster(work, ["a", "b", "c"], "work", **GPU))
    assert len({one.result for one in found.values()}) == 1  # one process, one call
    assert found["a"].result[1:] == ("0", 3)  # type: ignore[index]
    found = by_key(on_cluster(work, ["deadly", "a", "b"], "work", **GPU))
    assert found["b"].result[2] == 1  # type: ignore[index]
    assert isinstance(found.pop("deadly").result, WorkerLost)
    assert set(found) == {"a", "b"}


def test_the_shards_left_of_a_task_whose_worker_was_lost_are_given_again(cluster: RayCluster, tmp_path: Path) -> None:
    lost = tmp_path / "lost"

    def work(task: Task) -> Iterator[tuple[str, object]]:
        for key in task.keys:
            if key == "c" and not lost.exists():
                time.sleep(1)
                lost.touch()
                os._exit(1)
            yield key, task.attempt

    found = by_key(on_cluster(work, ["a", "b", "c", "d"], "work", **GPU))
    assert {key: one.result for key, one in found.items()} == {"a": 1, "b": 1, "c": 2, "d": 2}


def test_a_worker_that_cannot_load_the_work_ends_the_step(cluster: RayCluster) -> None:
    def work(task: Task) -> Iterator[tuple[str, object]]:
        PluginSettings(modules=("no_such_module",))
        yield from ()

    with pytest.raises(ClusterUnavailable, match="no_such_module cannot be imported"):
        list(on_cluster(work, ["a"], "work", **CPU))


def test_work_that_cannot_be_sent_ends_the_step_before_it_begins(cluster: RayCluster) -> None:
    lock = threading.Lock()

    def work(task: Task) -> Iterator[tuple[str, object]]:
        with lock:
            yield from ((key, key) for key in task.keys)

    with pytest.raises(ClusterUnavailable, match=r"^work cannot be sent to the cluster: TypeError: .*thread\.lock"):
        list(on_cluster(work, ["a"], "work", **CPU))


def test_a_cancelled_run_leaves_no_worker_at_work(
    cluster: RayCluster, launcher: Path, bucket: str, s3_server: S3Server, tmp_path: Path
) -> None:
    upload(s3_server, bucket, hanging_shard(tmp_path / "hanging.tar"))
    settings_of(launcher, bucket)
    command = [sys.executable, "-c", RUN, str(launcher / "out.toml"), "hanging"]
    environment = {**os.environ, "INTERLEAVED_RUN__MAX_SHARD_SECONDS": "600"}
    process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        done = f"{bucket}/out/records/normalized/hanging.json"
        wait_for(lambda: bool(s3_server.fs.glob(done)), "the first stage")
        wait_for(lambda: free_cpus() == 1, "the hanging shard")
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        process.wait(30)
        wait_for(lambda: free_cpus() == 2, "the end of the worker", 30)
        assert time.monotonic() - started < 30
    finally:
        process.kill()


@pytest.mark.torch
def test_the_chain_with_its_model_on_the_node_with_the_device(
    cluster: RayCluster, launcher: Path, bucket: str, s3_server: S3Server, tmp_path: Path
) -> None:
    pytest.importorskip("open_clip")
    for name, content in itertools.islice(demo_shards(), 2):
        s3_server.fs.pipe(f"{bucket}/raw/{name}", content)
    for file in MODELS.glob("scenes-clip.*"):
        s3_server.fs.pipe(f"{bucket}/models/{file.name}", file.read_bytes())
    (launcher / "clip.toml").write_text(
        f"""
[storage]
raw_root = "s3://{bucket}/raw"
output_root = "s3://{bucket}/out"
[errors]
on_materialize_error = "drop_row"
[clip]
enabled = true
model = "scenes"
model_config_path = "s3://{bucket}/models/scenes-clip.json"
pretrained = "s3://{bucket}/models/scenes-clip.safetensors"
[run]
executor = "ray"
""",
        encoding="utf-8",
    )
    settings = load_settings(launcher / "clip.toml")
    with dg.DagsterInstance.ephemeral() as instance:
        keys = register_all(instance, settings.storage)
        result = (
            build_definitions(settings)
            .resolve_implicit_global_asset_job_def()
            .execute_in_process(
                instance=instance,
                asset_selection=[dg.AssetKey(name) for name in stage_dag(settings)],
                tags={RANGE_START: keys[0], RANGE_END: keys[-1]},
            )
        )
        assert result.success
        made = instance.fetch_materializations(dg.AssetKey("clip_scores"), limit=10).records
    (_, with_device) = cluster.nodes
    shown = [record.asset_materialization.metadata for record in made if record.asset_materialization]
    assert [metadata["host"].value for metadata in shown] == [with_device] * 2
    assert sum(float(str(metadata["device_wait_seconds"].value)) for metadata in shown) > 0
    s3_server.fs.invalidate_cache()
    assert len([path for path in s3_server.fs.find(f"{bucket}/out/tars") if path.endswith(".tar")]) == 2


def test_a_node_goes_down_in_the_middle_and_no_shard_is_lost(
    cluster: RayCluster, launcher: Path, bucket: str, s3_server: S3Server, tmp_path: Path
) -> None:
    good = [f"{number:02}" for number in range(10)]
    for number, key in enumerate(good):
        upload(s3_server, bucket, good_shard(tmp_path / f"{key}.tar", seed=10 * number))
    broken = tmp_path / "broken.tar"
    broken.write_bytes(b"this is no tar" * 100)
    upload(s3_server, bucket, broken)
    upload(s3_server, bucket, hanging_shard(tmp_path / "hanging.tar"))
    scored = f"{bucket}/out/records/image_scores"
    first, *_ = cluster.nodes
    killer = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, signal, sys, time, fsspec\n"
            "fs = fsspec.filesystem('s3', use_listings_cache=False)\n"
            "while not fs.exists(sys.argv[1]): time.sleep(0.1)\n"
            "os.kill(int(sys.argv[2]), signal.SIGKILL)",
            scored,
            str(cluster.nodes[first].pid),
        ]
    )
    try:
        with dg.DagsterInstance.ephemeral() as instance:
            ran = run_chain(instance, settings_of(launcher, bucket), ["broken", *good, "hanging"])
            assert "broken: " in ran.summary
            assert {stage: materialized(instance, stage) for stage in STAGES} == {
                stage: {*good, "hanging"} if stage in ("normalized", "document_scores") else set(good)
                for stage in STAGES
            }
            hosts = {
                str(record.asset_materialization.metadata["host"].value)
                for record in instance.fetch_materializations(dg.AssetKey("normalized"), limit=50).records
                if record.asset_materialization
            }
    finally:
        killer.kill()
        killer.wait()
    assert cluster.nodes[first].poll() is not None
    assert hosts == set(cluster.nodes)  # both had worked
    assert not ran.success
    assert f"shard hanging: image_scores was stopped because it took longer than run.max_shard_seconds = {LIMIT_S}" in (
        ran.summary
    )
    with dg.DagsterInstance.ephemeral() as instance:
        alone = settings_of(launcher, bucket, executor="in_process", out="alone")
        assert run_chain(instance, alone, good).success
    assert contents(s3_server, f"{bucket}/out", good) == contents(s3_server, f"{bucket}/alone", good)


def upload(server: S3Server, bucket: str, tar: Path) -> None:
    server.fs.put_file(str(tar), f"{bucket}/raw/{tar.name}")


def hanging_shard(path: Path) -> Path:
    return write_shard(path, {"doc": document("one two three", sharp_image(1, width=13))})


def contents(server: S3Server, root: str, keys: Sequence[str]) -> dict[str, bytes]:
    """The outputs of these shards below ``root``, by path; not their records, which name places and ETags."""
    server.fs.invalidate_cache()
    found = {
        path.removeprefix(root): server.fs.cat_file(path)
        for path in server.fs.find(root)
        if Path(path).stem in keys and "/records/" not in path
    }
    assert len(found) >= 4 * len(keys)
    return found
