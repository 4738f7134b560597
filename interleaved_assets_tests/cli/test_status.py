import json
from pathlib import Path

import pytest

from interleaved_assets.cli import main
from interleaved_assets_tests.documents import good_shard, project


def test_status_names_stale_shards_why_and_what_a_run_would_make(
    curated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*curated, "status"]) == 0
    assert "tonight: 0 shards through no stage." in capsys.readouterr().out
    project(tmp_path, "[selection]\nmin_sharpness = 80\n")
    good_shard(tmp_path / "raw" / "new.tar")
    assert main([*curated, "status"]) == 0
    printed = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines() if "│" in line]
    stale = next(row for row in rows if row[0] == "stale")
    assert (stale[1], stale[3], stale[4]) == ("2", "filtered, final_tars", "a, b")
    assert next(row for row in rows if row[0] == "missing")[1:3] == ["1", "never materialized"]
    assert "min_sharpness 100.0 → 80.0" in " ".join(row[2] for row in rows)
    assert "tonight: 3 shards through normalized, image_scores, filtered, final_tars." in printed
    assert main([*curated, "status", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["shard"], line["state"], line["stages"][0]) for line in lines] == [
        ("a", "stale", "filtered"),
        ("b", "stale", "filtered"),
        ("new", "missing", "normalized"),
    ]
