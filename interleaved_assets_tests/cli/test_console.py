"""Progress: a bar on a terminal, lines elsewhere, nothing beside JSON; lines of any length."""

import io
import itertools
import time

import pytest
from rich.console import Console

from interleaved_assets.cli.terminal.console import console, progress


def shown(
    capsys: pytest.CaptureFixture[str], *, terminal: bool, as_json: bool = False, lines: bool = True
) -> list[str]:
    """What three of three counted ones print on stdout and on stderr."""
    out = Console(file=io.StringIO(), force_terminal=terminal, width=80)
    with progress("comparing", 3, out, as_json=as_json, lines=lines) as advance:
        for _ in range(3):
            advance()
    assert isinstance(out.file, io.StringIO)
    return [out.file.getvalue(), capsys.readouterr().err]


def let_time_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute passes from one look at the clock to the next."""
    minutes = itertools.count(0, 60)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(minutes)))


def test_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    bar, err = shown(capsys, terminal=True)
    assert "comparing" in bar
    assert "3/3" in bar
    assert err == ""


def test_lines_elsewhere_and_not_too_many(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(capsys, terminal=False) == ["", ""]  # within the first ten seconds
    let_time_pass(monkeypatch)
    assert shown(capsys, terminal=False) == ["", "comparing: 1 of 3\ncomparing: 2 of 3\ncomparing: 3 of 3\n"]
    assert shown(capsys, terminal=False, lines=False) == ["", ""]


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_beside_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    let_time_pass(monkeypatch)
    assert shown(capsys, terminal=terminal, as_json=True) == ["", ""]


def test_lines_and_facts_of_any_length_stay_whole(capsys: pytest.CaptureFixture[str]) -> None:
    key = "a long key/" * 40
    console().print_line(f"shard {key}")
    console().print_facts([("uri", key), ("sha256", "0" * 64)])
    assert capsys.readouterr().out.splitlines() == [f"shard {key}", f"  uri     {key}", f"  sha256  {'0' * 64}"]
