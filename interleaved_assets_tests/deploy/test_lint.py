"""What cannot be run here is kept valid by its linter."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_yaml() -> None:
    check = [_program("yamllint"), "--strict", "-c", DEPLOY / ".yamllint.yaml", DEPLOY]
    answer = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout) == (0, "")


@pytest.mark.parametrize("image", ["cpu", "gpu"])
def test_dockerfile(image: str) -> None:
    check = [_program("hadolint"), DEPLOY / f"docker/Dockerfile.{image}"]
    answer = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout) == (0, "")


@pytest.mark.parametrize("script", sorted(DEPLOY.glob("**/*.sh")), ids=lambda path: path.name)
def test_script(script: Path) -> None:
    subprocess.run(["sh", "-n", script], check=True)
    assert script.stat().st_mode & 0o111


def _program(name: str) -> str:
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    assert found, f"{name} is missing: pip install '.[dev]'"
    return found
