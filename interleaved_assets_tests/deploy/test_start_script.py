"""What deploy/ray/start.sh refuses before Ray starts."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy/ray/start.sh"
TOKEN = "t" * 32


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        (["head"], {"RAY_AUTH_TOKEN": "short"}, "32 characters or more"),
        (["head"], {}, "RAY_AUTH_TOKEN"),
        ([], {"RAY_AUTH_TOKEN": TOKEN}, "head or worker"),
        (["tail"], {"RAY_AUTH_TOKEN": TOKEN}, "head or worker, not tail"),
        (["worker"], {"RAY_AUTH_TOKEN": TOKEN}, "address of the head"),
        (["head"], {"RAY_AUTH_TOKEN": TOKEN, "INTERLEAVED_RUN__EXECUTOR": "ray"}, "the settings are sent with the run"),
    ],
)
def test_it_names_what_is_missing(arguments: list[str], variables: dict[str, str], message: str) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "INTERLEAVED_"))}
    answer = subprocess.run([SCRIPT, *arguments], env=clean | variables, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert message in answer.stderr
