"""What the commands show of rewritten texts: the way of a sample, dropped rows, the page of a shard."""

import json
from pathlib import Path

import pytest

from interleaved_assets.cli import main
from interleaved_assets_tests.documents import document, project, sharp_image, write_shard
from interleaved_assets_tests.projects import take_all

TEXT = "Write to a@b.com"
REWRITING = '[rewriting]\nfunctions = ["redact_personal_data", "drop_boilerplate"]\n'


@pytest.fixture
def base(tmp_path: Path) -> list[str]:
    """Arguments that point at a project with one shard whose texts were rewritten."""
    settings = project(tmp_path, f"{REWRITING}[selection]\nown.width.max = 60\n")
    documents = {"one": document(TEXT, sharp_image(1), "Skip to content"), "two": document("plain", sharp_image(2, 32))}
    write_shard(tmp_path / "raw/a.tar", documents)
    take_all(settings)
    return ["--settings", str(tmp_path / "interleaved.toml")]


def test_trace_shows_what_was_changed_in_a_text(base: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*base, "trace", "one", "--json"]) == 0
    (shard,) = json.loads(capsys.readouterr().out)["shards"]
    stages = {stage["stage"]: stage for stage in shard["stages"]}
    rows = {row["position"]: (row["outcome"], row["detail"]) for row in stages["rewritten"]["rows"]}
    assert rows == {
        -1: ("kept", ""),
        0: ("changed", "redact_personal_data: 16 → 16 characters, 1 [EMAIL]"),
        1: ("kept", ""),
        2: ("dropped: drop_boilerplate", "navigation or a notice"),
    }
    assert [row["outcome"] for row in stages["filtered"]["rows"]] == ["kept", "kept", "dropped: width_above"]
    assert main([*base, "trace", "one"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "rewritten" in printed
    assert "changed" in printed


def test_drops_name_the_function_and_the_text(
    base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*base, "drops", "--shard", "a", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["stage"], row["reason"], row["content"]) for row in rows] == [
        ("rewritten", "drop_boilerplate", "Skip to content"),
        ("filtered", "width_above", "one.1.png"),
    ]
    # a rewriting that is off has dropped nothing of the present rows
    take_all(project(tmp_path, "[selection]\nown.width.max = 60\n"))
    assert main([*base, "drops", "--shard", "a", "--json"]) == 0
    assert [json.loads(line)["stage"] for line in capsys.readouterr().out.splitlines()] == ["filtered"]


def test_a_text_that_selection_drops_is_shown_as_it_was_rewritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = project(tmp_path, f"{REWRITING}[selection]\nmax_ratio = 0.01\n")
    write_shard(tmp_path / "raw/a.tar", {"one": document(TEXT, sharp_image(1))})
    take_all(settings)
    base = ["--settings", str(tmp_path / "interleaved.toml")]
    assert main([*base, "drops", "--shard", "a", "--json"]) == 0
    contents = [json.loads(line)["content"] for line in capsys.readouterr().out.splitlines()]
    assert "Write to [EMAIL]" in contents
    assert TEXT not in contents


def test_the_page_of_a_shard_says_what_was_changed(
    base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main([*base, "view", "a", "--out", str(page)]) == 0
    assert "2 documents" in capsys.readouterr().out
    text = page.read_text()
    assert "changed by <bdi>redact_personal_data: 16 → 16 characters, 1 [EMAIL]</bdi>" in text
    assert "Write to [EMAIL]" in text
    assert TEXT not in text
    assert text.count("changed by") == 1
    # the rows as they were, once rewriting is off
    take_all(project(tmp_path))
    assert main([*base, "view", "a", "--out", str(page), "--overwrite"]) == 0
    assert TEXT in page.read_text()


def test_what_if_and_report_read_the_rewritten_rows(base: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*base, "what-if", "own.width.max=1000", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["then"]["rows_kept"] - answer["now"]["rows_kept"] == 1
    assert main([*base, "report"]) == 0
