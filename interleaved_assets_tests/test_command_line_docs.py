"""docs/command-line.md: every command of the page runs and prints what stands there, and every option is described."""

import contextlib
import io
import logging
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest

from interleaved_assets.cli import main
from interleaved_assets.cli.commands.group import interleaved
from interleaved_assets.demo.damage import damaged_members
from interleaved_assets.demo.documents import pack_tar
from interleaved_assets.model.errors import ROW_ERROR_CODES
from interleaved_assets.pipeline.files.validate import FINDING_CODES, NOTE_CODES
from interleaved_assets_tests.documents import good_shard

PAGE = (Path(__file__).parents[1] / "docs/command-line.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))
HOME = "/home/me/project"
"""The folder of the examples."""


def session(folder: Path) -> Iterator[tuple[int, str, str, str]]:
    """The line of each command of the page in its order, the command, its output on the page, and its output."""
    good_shard(folder / "data/raw/2024/part-0.tar")
    (folder / "data/raw/2024/part-1.tar").write_bytes(pack_tar(damaged_members(np.random.default_rng(1))))
    for block in re.finditer(r"^```console\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL):
        for found in re.finditer(r"^\$ interleaved ([^\n]*)\n(.*?)(?=^\$ |\Z)", block[1], re.MULTILINE | re.DOTALL):
            line = PAGE.count("\n", 0, block.start(1) + found.start()) + 1
            yield line, found[1], found[2], printed(found[1]).replace(str(folder), HOME)


def printed(command: str) -> str:
    """What the command prints on stdout and stderr, without spaces at the ends of lines, and its exit code if not 0."""
    output = io.StringIO()
    log = logging.StreamHandler(output)  # as Python shows warnings where no handler is set
    log.setLevel(logging.WARNING)
    package = logging.getLogger("interleaved_assets")
    package.addHandler(log)
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = main(shlex.split(command))
    finally:
        package.removeHandler(log)
    lines = [line.rstrip() for line in output.getvalue().splitlines()]
    return "\n".join([*lines, *([f"[exit code {code}]"] if code else [])]).strip("\n") + "\n"


def agrees(shown: str, output: str) -> bool:
    """Whether the page shows the output; a line ``…`` stands for any lines, and ``…`` in a line for any characters.

    Lines may be in another order: threads log while another one prints what is done.
    """
    parts = [re.escape(line).replace("…", ".*") if line != "…" else r"(?:.*\n)*?.*" for line in shown.splitlines()]
    if re.fullmatch("\n".join(parts) + "\n", output) is not None:
        return True
    left = output.splitlines()
    for line, part in zip(shown.splitlines(), parts, strict=True):
        if line != "…":
            found = next((one for one in left if re.fullmatch(part, one)), None)
            if found is None:
                return False
            left.remove(found)
    return not left or "…" in shown.splitlines()


def test_every_command_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    different = [
        f"docs/command-line.md, line {line}: {command} now prints\n{output}"
        for line, command, shown, output in session(tmp_path)
        if not agrees(shown, output)
    ]
    if different:
        pytest.fail("\n".join(different), pytrace=False)


@pytest.mark.parametrize("name", interleaved.commands)
def test_every_command_and_option_is_described(name: str) -> None:
    command = interleaved.commands[name]
    options = {flag for option in command.params if isinstance(option, click.Option) for flag in option.opts}
    described = set(re.findall(r"(?<![\w-])(--?[a-z][\w-]*)", SECTIONS[name]))
    assert options - described == set()
    assert f"]({'#' + name})" in PAGE


def test_every_code_is_listed_with_its_meaning() -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", SECTIONS["Codes"], flags=re.MULTILINE))
    of_rows = FINDING_CODES.keys() & ROW_ERROR_CODES.keys()
    assert listed == {code: meaning for code, meaning in (FINDING_CODES | NOTE_CODES).items() if code not in of_rows}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_there_for_each_shell(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"_INTERLEAVED_COMPLETE={shell}_source interleaved" in PAGE
    monkeypatch.setenv("_INTERLEAVED_COMPLETE", f"{shell}_complete")
    words = {"COMP_WORDS": "interleaved conv", "COMP_CWORD": "conv" if shell == "fish" else "1"}
    for variable, value in words.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(SystemExit):
        main([])
    assert "convert" in capsys.readouterr().out
    assert os.environ["_INTERLEAVED_COMPLETE"]
