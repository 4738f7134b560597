import json
import re
from pathlib import Path

import pytest

from interleaved_assets.cli import main
from interleaved_assets.cli.commands.status import FAILURES_SHOWN
from interleaved_assets_tests.documents import STAGES, good_shard, project, with_downstream


def test_status_names_stale_shards_why_and_what_a_run_would_make(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*curated, "status"]) == 0
    assert capsys.readouterr().out.endswith("\nA run would make nothing.\n")
    project(tmp_path, "[selection]\nmin_sharpness = 80\n")
    good_shard(tmp_path / "raw" / "new.tar")
    assert main([*curated, "status"]) == 0
    printed = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines() if "│" in line]
    stale = next(row for row in rows if row[0] == "stale")
    assert (stale[1], stale[3], stale[4]) == ("2", ", ".join(with_downstream("filtered")), "a, b")
    assert next(row for row in rows if row[0] == "missing")[1:3] == ["1", "never materialized"]
    assert "min_sharpness 100.0 → 80.0" in " ".join(row[2] for row in rows)
    assert f"A run would take 3 shards through {', '.join(STAGES)}: interleaved" in " ".join(printed.split())
    assert main([*curated, "status", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["shard"], line["state"], line["stages"][0]) for line in lines] == [
        ("a", "stale", "filtered"),
        ("b", "stale", "filtered"),
        ("new", "missing", "normalized"),
    ]


def test_failed_shards_are_named_with_their_errors(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(FAILURES_SHOWN + 2):
        (tmp_path / f"raw/empty-{number:02d}.tar").touch()
    assert main([*curated, "run"]) == 2
    capsys.readouterr()
    assert main([*curated, "status"]) == 0
    printed = capsys.readouterr().out
    named = [line for line in printed.splitlines() if " failed at normalized on 20" in line]
    assert len(named) == FAILURES_SHOWN
    assert re.fullmatch(
        rf"empty-00 failed at normalized on [-\d]+ [:\d]+ UTC: {tmp_path}/raw/empty-00.tar is empty.*", named[0]
    )
    assert "\n… and 2 more failed shards; interleaved status --json has all of them\n" in printed
    assert main([*curated, "status", "--json"]) == 0
    facts = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["error"].partition(" is empty")[0] for line in facts if line["state"] == "failed"] == [
        f"{tmp_path}/raw/empty-{number:02d}.tar" for number in range(FAILURES_SHOWN + 2)
    ]


def test_without_shards_status_and_run_say_what_a_shard_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project(tmp_path)
    raw = tmp_path / "raw"
    (raw / "a.zip").write_bytes(b"")
    for command in ("status", "run"):
        assert main(["--settings", str(tmp_path / "interleaved.toml"), command]) == 0
        assert capsys.readouterr().out == (
            f"no shards: no file below {raw} has a name that ends in .tar, .tar.gz, .tgz, "
            ".parquet, .jsonl, .jsonl.gz, .warc, .warc.gz or .pdf; images need storage.bundles\n"
        )


def test_without_a_raw_root_status_is_one_line_of_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project(tmp_path)
    (tmp_path / "raw").rmdir()
    assert main(["--settings", str(tmp_path / "interleaved.toml"), "status"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        f"interleaved: raw root {tmp_path / 'raw'} does not exist: set storage.raw_root in the settings file\n"
    )
