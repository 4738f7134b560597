"""Completion at the prompt: keys of shards where they are wanted, and nothing at all where something is wrong."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from interleaved_assets.cli.commands.group import interleaved
from interleaved_assets.cli.terminal import complete as module
from interleaved_assets_tests.defects import stand_in
from interleaved_assets_tests.documents import project

KEYS = ("2024/part-0", "2024/part-1", "2025/part-0", "caf%C3%A9")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with records of :data:`KEYS`, whose first raw shard is gone, and a raw shard without any record."""
    project(tmp_path)
    for key in KEYS:
        record = tmp_path / f"out/records/normalized/{key}.json"
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text("{}")
    for name in ("2024/part-1", "2025/part-0", "café", "new"):
        (tmp_path / f"raw/{name}.tar").parent.mkdir(exist_ok=True)
        (tmp_path / f"raw/{name}.tar").touch()
    monkeypatch.chdir(tmp_path)
    stand_in(monkeypatch, module, "LIMIT_SECONDS", 300)  # on a busy machine
    return tmp_path


def completed(*words: str) -> list[str]:
    """What Tab offers behind ``words``, the last of which is incomplete."""
    shell = ShellComplete(interleaved, {}, "interleaved", "_INTERLEAVED_COMPLETE")
    return [
        item.value if item.type == "plain" else item.type for item in shell.get_completions(list(words[:-1]), words[-1])
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("view", ""),
        ("trace", "doc", "--shard", ""),
        ("drops", "--shard", ""),
        ("what-if", "min_sharpness=1", "--shard", ""),
        ("--settings", "interleaved.toml", "view", ""),
    ],
)
def test_commands_take_the_keys_of_shards_that_were_made(words: tuple[str, ...]) -> None:
    assert completed(*words) == list(KEYS)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("view", "2024/"), ["2024/part-0", "2024/part-1"]),
        (("view", "2025/part"), ["2025/part-0"]),
        (("view", "nothing"), ["file"]),
        (("view", "../raw/"), ["file"]),
        (("drops", "--shard", "nothing"), []),
        (("run", ""), ["2024/part-1", "2025/part-0", "caf%C3%A9", "new"]),
        (("run", "n"), ["new"]),
        (("forget", ""), ["2024/part-0"]),
        (("inspect", "raw/"), ["file"]),
        (("convert", "raw", "-o", ""), ["dir"]),
        (("trace", "--tar", ""), ["file"]),
        (("convert", "raw", "--to", "t"), ["tar", "tar.gz", "tgz"]),
    ],
)
def test_what_is_offered(words: tuple[str, ...], found: list[str]) -> None:
    assert completed(*words) == found


def test_every_key_and_file_is_completed() -> None:
    taking = ("KEY", "FILE", "FOLDER", "URL", "PATH", "INPUT", "TAR")
    without = [
        f"{name} {parameter.name}"
        for name, command in interleaved.commands.items()
        for parameter in command.params
        if any(word in (parameter.metavar or "") for word in taking)
        if parameter._custom_shell_complete is None and not isinstance(parameter.type, click.Path)
    ]
    assert without == []


@pytest.mark.parametrize("text", ["[storage\n", "[storage]\nraw_roof = 1\n", '[plugins]\nmodules = ["noisy"]\n', None])
def test_wrong_settings_complete_nothing_and_print_nothing(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    (here / "noisy.py").write_text("import sys\nprint('out')\nprint('err', file=sys.stderr)\nraise RuntimeError('x')\n")
    monkeypatch.syspath_prepend(str(here))
    file = here / "interleaved.toml"
    file.unlink() if text is None else file.write_text(text)
    assert completed("drops", "--shard", "") == []
    assert capfd.readouterr() == ("", "")


def test_more_keys_than_a_shell_can_show_are_not_offered(here: Path) -> None:
    for number in range(2000):
        (here / f"out/records/normalized/{number}.json").touch()
    assert completed("drops", "--shard", "") == []
    assert completed("drops", "--shard", "2024/") == ["2024/part-0", "2024/part-1"]


HANGS = """
import os, sys, threading
from interleaved_assets.cli.terminal import complete
from interleaved_assets.cli import main

complete.LIMIT_SECONDS = 0.5
sys.addaudithook(lambda event, given: event in ("os.scandir", "os.listdir") and "/out/" in f"{given[0]}"
                 and threading.Event().wait())
main([])
"""


def test_storage_that_hangs_completes_nothing_in_bounded_time(here: Path) -> None:
    words = {"_INTERLEAVED_COMPLETE": "bash_complete", "COMP_WORDS": "interleaved drops --shard ", "COMP_CWORD": "3"}
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [sys.executable, "-P", "-c", HANGS],
        env={**os.environ, **words, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,  # the storage hangs for ever
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    assert isinstance(interleaved, click.Group)
