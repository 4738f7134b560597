"""The images, without a builder: what their Dockerfiles promise."""

import re
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "deploy/docker"


@pytest.fixture(params=["cpu", "gpu"])
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


def test_the_base_is_pinned_to_a_release_of_python_we_support(dockerfile: Path) -> None:
    bases = {rest.split()[0] for word, rest in instructions(dockerfile) if word == "FROM"}
    (base,) = bases
    assert re.fullmatch(r"python:3\.(11|12)\.\d+-slim-bookworm", base)


def test_it_does_not_run_as_root(dockerfile: Path) -> None:
    uid, gid = last(dockerfile, "USER").split(":")
    assert int(uid) > 0
    assert int(gid) > 0


def test_it_listens_to_itself_alone_until_told_otherwise(dockerfile: Path) -> None:
    assert '"-h", "127.0.0.1"' in last(dockerfile, "CMD")
    assert "grpc-health-check" in last(dockerfile, "HEALTHCHECK")


def test_no_secret_is_built_in(dockerfile: Path) -> None:
    for word, rest in instructions(dockerfile):
        if word in {"ARG", "ENV"}:
            assert not re.search("KEY|SECRET|PASSWORD|TOKEN", rest), rest


def test_what_is_copied_is_there_and_reaches_the_builder(dockerfile: Path) -> None:
    ignore = dockerfile.with_name(dockerfile.name + ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {line.removeprefix("!") for line in ignore if line.startswith("!")}
    copied = set()
    for word, rest in instructions(dockerfile):
        if word == "COPY" and "--from" not in rest:
            copied |= set([part for part in rest.split() if not part.startswith("--")][:-1])
    assert copied == sent
    assert [name for name in sorted(copied) if not (REPOSITORY / name).exists()] == []


def test_the_extras_are_the_projects(dockerfile: Path) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (chosen,) = [rest for word, rest in instructions(dockerfile) if word == "ARG"]
    assert set(chosen.removeprefix("EXTRAS=").split(",")) <= set(project["optional-dependencies"])
