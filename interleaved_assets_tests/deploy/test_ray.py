"""Steps on a Ray cluster whose node shares a bucket and PostgreSQL with the process of the run, and no folder."""

import base64
import itertools
import json
import urllib.error
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from dagster._core.definitions.reconstruct import ReconstructableRepository

from interleaved_assets.defs.demo import RANGE_END, RANGE_START, register_all
from interleaved_assets.demo.documents import pack_tar
from interleaved_assets.demo.shards import demo_shards
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import load_settings
from interleaved_assets_tests.deploy.postgres import PostgresServer
from interleaved_assets_tests.deploy.ray_head import RayHead, ray_head
from interleaved_assets_tests.deploy.toy import ASSETS, said, toy_job
from interleaved_assets_tests.s3 import S3Server

pytestmark = pytest.mark.system
REPOSITORY = Path(__file__).parents[2]
MODELS = REPOSITORY / "data/models"
SETTINGS = """
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
shards_per_run = 7
"""
# Python runs it before anything else, so that it records the environment of every step.
NOTE_DEVICES = """
import os
if step := os.environ.get("DAGSTER_RUN_STEP_KEY"):
    with open(f"{os.environ['DEVICES_NOTED_IN']}/{step}.devices", "w") as file:
        file.write(os.environ.get("CUDA_VISIBLE_DEVICES", "none"))
"""


@dataclass(frozen=True)
class Deployment:
    """A folder on either side, which the other does not see, and what both have."""

    folder: Path
    worker: Path
    bucket: str
    head: RayHead


@pytest.fixture(scope="module")
def deployment(
    deploy_folder: Path,
    postgres_server: PostgresServer,
    s3_server: S3Server,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Deployment]:
    here, worker = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("worker")
    launcher = here / "launcher"
    launcher.mkdir()
    bucket = s3_server.new_bucket()
    instance = yaml.safe_load((deploy_folder / "postgres/dagster.yaml").read_text(encoding="utf-8"))
    logs = yaml.safe_load((deploy_folder / "s3-logs/dagster.yaml").read_text(encoding="utf-8"))
    (launcher / "dagster.yaml").write_text(yaml.safe_dump(instance | {"compute_logs": logs["compute_logs"]}))
    (launcher / "interleaved.toml").write_text(SETTINGS.format(bucket=bucket), encoding="utf-8")
    (worker / "interleaved.toml").touch()
    (worker / "sitecustomize.py").write_text(NOTE_DEVICES, encoding="utf-8")
    shared = {
        **postgres_server.environment,
        **s3_server.environment,
        "AWS_DEFAULT_REGION": "us-east-1",
        "DAGSTER_LOGS_BUCKET": bucket,
    }
    on_worker = {
        "INTERLEAVED_SETTINGS": str(worker / "interleaved.toml"),
        "DAGSTER_LOGS_STAGING": str(worker / "logs"),
        "TOY_LAUNCHER_FILE": str(launcher / "interleaved.toml"),
        "PYTHONPATH": f"{worker}:{REPOSITORY}",
        "DEVICES_NOTED_IN": str(worker),
    }
    with (
        ray_head(deploy_folder / "ray/start.sh", here, shared | on_worker) as head,
        pytest.MonkeyPatch.context() as patch,
    ):
        on_launcher = {
            "INTERLEAVED_SETTINGS": str(launcher / "interleaved.toml"),
            "DAGSTER_LOGS_STAGING": str(launcher / "logs"),
        }
        for name, value in {**shared, **on_launcher, **head.environment}.items():
            patch.setenv(name, value)
        yield Deployment(launcher, worker, bucket, head)


@pytest.fixture(scope="module")
def facts(deployment: Deployment) -> dict[str, dict[str, object]]:
    """What each step said of the place it worked in."""
    with (
        dg.DagsterInstance.from_config(str(deployment.folder)) as instance,
        dg.execute_job(dg.reconstructable(toy_job), instance=instance) as result,
    ):
        assert result.success
        return said(instance)


def test_only_the_gpu_step_is_given_the_gpu(facts: dict[str, dict[str, object]]) -> None:
    assert {name: facts[name]["devices"] for name in ASSETS} == {"before": "none", "on_gpu": "0", "after": "none"}


def test_a_worker_without_shared_files_gets_the_settings_of_the_run(
    facts: dict[str, dict[str, object]], deployment: Deployment
) -> None:
    assert not any(facts[name]["sees_launcher"] for name in ASSETS)
    assert {facts[name]["output_root"] for name in ASSETS} == {f"s3://{deployment.bucket}/out"}
    assert {facts[name]["shards_per_run"] for name in ASSETS} == {7}


def test_what_a_step_prints_lands_in_the_bucket(
    facts: dict[str, dict[str, object]], deployment: Deployment, s3_server: S3Server
) -> None:
    names = [name for name in s3_server.fs.find(f"{deployment.bucket}/dagster-logs") if name.endswith(".out")]
    assert sorted(s3_server.fs.cat_file(name) for name in names if s3_server.fs.size(name)) == [
        f"this is {asset}\n".encode() for asset in sorted(ASSETS)
    ]


def test_no_secret_is_sent_along(
    facts: dict[str, dict[str, object]], deployment: Deployment, postgres_server: PostgresServer
) -> None:
    """Ray's job server hands out the variables of every job, Dagster's packed arguments among them."""
    jobs = json.loads(deployment.head.get("/api/jobs/"))
    variables = [job["runtime_env"]["env_vars"] for job in jobs if job["type"] == "SUBMISSION"]
    assert len(variables) == len(ASSETS)
    shown = json.dumps(jobs) + "".join(unpacked(item["DAGSTER_COMPRESSED_EXECUTE_STEP_ARGS"]) for item in variables)
    assert "DAGSTER_PG_PASSWORD" in shown
    assert postgres_server.password not in shown
    assert "admin-secret" not in shown


def test_the_cluster_answers_only_with_its_token(deployment: Deployment) -> None:
    with pytest.raises(urllib.error.HTTPError, match="403"):
        RayHead(deployment.head.address, "another-token-of-32-characters-x").get("/api/jobs/")


def unpacked(arguments: str) -> str:
    return zlib.decompress(base64.b64decode(arguments)).decode()


@pytest.mark.torch
def test_the_chain_over_two_shards(deployment: Deployment, s3_server: S3Server) -> None:
    pytest.importorskip("open_clip")
    shards = dict(itertools.islice(demo_shards(), 2))
    for name, members in shards.items():
        s3_server.fs.pipe(f"{deployment.bucket}/raw/{name}", pack_tar(members))
    for file in MODELS.glob("scenes-clip.*"):
        s3_server.fs.pipe(f"{deployment.bucket}/models/{file.name}", file.read_bytes())
    settings = load_settings()
    stages = stage_dag(settings)
    # what a code server has, and what Ray's workers load in their turn
    repository = ReconstructableRepository.for_module("interleaved_assets.definitions", "defs")
    job = repository.get_reconstructable_job("__ASSET_JOB")
    with dg.DagsterInstance.from_config(str(deployment.folder)) as instance:
        keys = register_all(instance, settings)
        with dg.execute_job(
            job,
            instance=instance,
            tags={RANGE_START: keys[0], RANGE_END: keys[-1]},
            asset_selection=[dg.AssetKey(name) for name in stages],
        ) as result:
            assert result.success
        made = {name: instance.get_materialized_partitions(dg.AssetKey(name)) for name in stages}
    assert made == {name: set(keys) for name in stages}
    assert {path.stem: path.read_text() for path in deployment.worker.glob("*.devices") if path.stem in stages} == {
        name: "0" if name == "clip_scores" else "none" for name in stages
    }
    for key in keys:
        with s3_server.fs.open(f"{deployment.bucket}/out/clip_scores/{key}.parquet") as file:
            scores = pq.read_table(file)
        assert pc.count(scores["clip_score"]).as_py() > 0
        assert s3_server.fs.exists(f"{deployment.bucket}/out/tars/{key}.tar")
