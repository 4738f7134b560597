"""The images, without a builder: what their Dockerfiles promise, and that what reaches them works."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from interleaved_assets_tests.ports import end, free_port, listens, wait_until_up
from interleaved_assets_tests.s3 import S3Server

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "deploy/docker"
VALUES = REPOSITORY / "deploy/kubernetes/values.yaml"
IMAGES = ["cpu", "gpu"]

_START_SECONDS = 600
_LOAD = """
import json, os, sys
from interleaved_assets import definitions
from interleaved_assets.settings import load_settings

def versions(defs):
    return {spec.key.to_user_string(): spec.code_version for spec in defs.resolve_all_asset_specs()}

loaded = {"executor": definitions.defs.executor.name, "versions": versions(definitions.defs)}
os.environ |= json.loads(sys.argv[1])
loaded["with_more"] = versions(definitions.build_definitions(load_settings()))
assert "torch" not in sys.modules  # the code location's image has none
print(json.dumps({"file": definitions.__file__, **loaded}))
"""


@pytest.fixture(params=IMAGES)
def dockerfile(request: pytest.FixtureRequest) -> Path:
    return FOLDER / f"Dockerfile.{request.param}"


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """Instruction and argument of every line, continued lines joined, comments left out."""
    text = re.sub(r"^\s*#.*\n", "", dockerfile.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(word, rest) for word, _, rest in (line.strip().partition(" ") for line in lines) if word]


def last(dockerfile: Path, name: str) -> str:
    """The argument of the last such instruction of the image itself, the last stage."""
    stage: list[tuple[str, str]] = []
    for word, rest in instructions(dockerfile):
        stage = [] if word == "FROM" else [*stage, (word, rest)]
    return [rest for word, rest in stage if word == name][-1]


def sent(dockerfile: Path) -> set[str]:
    """What reaches the builder."""
    ignore = dockerfile.with_name(dockerfile.name + ".dockerignore").read_text(encoding="utf-8").splitlines()
    return {line.removeprefix("!") for line in ignore if line.startswith("!")}


def copied(dockerfile: Path) -> list[tuple[list[str], str]]:
    """Sources and target of every COPY from the repository, the target as an absolute path of the image."""
    found = []
    folder = "/"
    for word, rest in instructions(dockerfile):
        if word == "WORKDIR":
            folder = rest
        elif word == "COPY" and "--from" not in rest:
            *sources, target = [part for part in rest.split() if not part.startswith("--")]
            found.append((sources, os.path.normpath(f"{folder}/{target}")))
    return found


def image_variables(dockerfile: Path) -> dict[str, str]:
    """The image's own environment."""
    return dict(part.split("=", 1) for part in last(dockerfile, "ENV").split())


def unpack(dockerfile: Path, root: Path) -> dict[str, str]:
    """Put the image's files below ``root``, and nothing that does not reach it; returns its environment."""
    for sources, target in copied(dockerfile):
        for source in sorted(sent(dockerfile).intersection(sources)):
            if (REPOSITORY / source).is_dir():
                # with what is compiled of it, which takes longer than to load it
                shutil.copytree(REPOSITORY / source, f"{root}{target}")
            else:
                Path(f"{root}{target}").mkdir(parents=True, exist_ok=True)
                shutil.copy(REPOSITORY / source, f"{root}{target}")
    own = image_variables(dockerfile).items()
    environment = {name: f"{root}{value}" if value.startswith("/") else value for name, value in own}
    Path(environment["DAGSTER_HOME"]).mkdir(parents=True)
    # the packages are this environment's; the project's own is the one that was copied
    return environment | {
        "PATH": f"{sysconfig.get_path('scripts')}:{os.defpath}",
        "PYTHONPATH": f"{root}/src",
        "HOME": str(root),
    }


def load(dockerfile: Path, root: Path, variables: dict[str, str], more: dict[str, str]) -> dict[str, Any]:
    """Executor and code versions that the image comes to with ``variables``, and the versions with ``more`` besides."""
    answer = subprocess.run(
        [sys.executable, "-c", _LOAD, json.dumps(more)],
        env=unpack(dockerfile, root) | variables,
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    loaded: dict[str, Any] = json.loads(answer.stdout)
    assert Path(loaded.pop("file")).is_relative_to(root)
    return loaded


def location_variables(values: str) -> dict[str, str]:
    """The environment of the code location in the Helm values."""
    (deployment,) = yaml.safe_load(values)["dagster-user-deployments"]["deployments"]
    return {variable["name"]: variable["value"] for variable in deployment["env"]}


def test_the_base_is_pinned_to_a_release_of_python_we_support(dockerfile: Path) -> None:
    bases = {rest.split()[0] for word, rest in instructions(dockerfile) if word == "FROM"}
    (base,) = bases
    assert re.fullmatch(r"python:3\.(11|12)\.\d+-slim-bookworm", base)


def test_it_does_not_run_as_root(dockerfile: Path) -> None:
    uid, gid = last(dockerfile, "USER").split(":")
    assert int(uid) > 0
    assert int(gid) > 0


def test_it_listens_on_loopback_by_default(dockerfile: Path) -> None:
    assert '"-h", "127.0.0.1"' in last(dockerfile, "CMD")
    assert "grpc-health-check" in last(dockerfile, "HEALTHCHECK")


def test_no_secret_is_built_in(dockerfile: Path) -> None:
    for word, rest in instructions(dockerfile):
        if word in {"ARG", "ENV"}:
            assert not re.search("KEY|SECRET|PASSWORD|TOKEN", rest), rest


def test_copied_files_exist_and_reach_the_builder(dockerfile: Path) -> None:
    sources = {source for sources, _ in copied(dockerfile) for source in sources}
    assert sources == sent(dockerfile)
    assert [name for name in sorted(sources) if not (REPOSITORY / name).exists()] == []


def test_the_extras_are_the_projects(dockerfile: Path) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (chosen,) = [rest for word, rest in instructions(dockerfile) if word == "ARG"]
    assert set(chosen.removeprefix("EXTRAS=").split(",")) <= set(project["optional-dependencies"])


def test_both_start_the_same_from_the_same_files() -> None:
    """So that what one of them does, the other one does too, as far as no GPU takes part in it."""
    cpu, gpu = (FOLDER / f"Dockerfile.{image}" for image in IMAGES)
    for name in ("WORKDIR", "CMD", "HEALTHCHECK"):
        assert last(cpu, name) == last(gpu, name)
    assert copied(cpu) == copied(gpu)
    assert sent(cpu) == sent(gpu)
    of_the_toolkit = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
    assert image_variables(cpu) | of_the_toolkit == image_variables(gpu)


@pytest.mark.system
def test_its_command_serves_and_its_health_check_passes(tmp_path: Path) -> None:
    dockerfile = FOLDER / "Dockerfile.gpu"  # the other one differs in nothing that this test sees, by the test above
    environment = unpack(dockerfile, tmp_path)
    port = free_port()
    command = json.loads(last(dockerfile, "CMD").replace("4000", str(port)))
    check = json.loads(last(dockerfile, "HEALTHCHECK").partition("CMD ")[2].replace("4000", str(port)))
    log = tmp_path / "log"
    with log.open("wb") as file:
        server = subprocess.Popen(command, cwd=tmp_path / "app", env=environment, stdout=file, stderr=file)
    try:
        wait_until_up(server, lambda: listens(port), _START_SECONDS, log)
        subprocess.run(check, env=environment, check=True)
    finally:
        end(server)


@pytest.mark.system
def test_on_kubernetes_code_location_and_gpu_step_come_to_the_same_versions(
    tmp_path: Path, s3_server: S3Server
) -> None:
    bucket = s3_server.new_bucket()
    values = VALUES.read_text(encoding="utf-8").replace("s3://curation/", f"s3://{bucket}/")
    with_clip = location_variables(re.sub(r"# (?=- name: INTERLEAVED_CLIP|  value: )", "", values))
    # size and ETag of the checkpoint are part of the version; the model is not loaded with the definitions
    s3_server.fs.pipe(with_clip["INTERLEAVED_CLIP__PRETRAINED"], b"weights")
    variables = location_variables(values) | s3_server.environment
    more = {name: value for name, value in with_clip.items() if name not in variables}
    cpu, gpu = (load(FOLDER / f"Dockerfile.{image}", tmp_path / image, variables, more) for image in IMAGES)
    assert cpu == gpu
    assert cpu["executor"] == "k8s"
    assert "clip_scores" not in cpu["versions"]
    assert "clip_scores" in cpu["with_more"]
