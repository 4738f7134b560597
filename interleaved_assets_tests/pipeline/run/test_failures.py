"""Failures of shards, as they are kept below the output root."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from interleaved_assets.cli import main
from interleaved_assets.pipeline.release.make import make_release
from interleaved_assets.pipeline.run.failures import Failure, store_failure
from interleaved_assets.pipeline.run.many import run_shards
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status.dataset_status import read_dataset_status
from interleaved_assets.pipeline.status.status import State
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import good_and_damaged_shards, good_shard, project

KEYS = ["a", "b", "c"]


def three_shards(settings: Settings, folder: Path) -> None:
    """Three shards that were taken through all stages; b is no tar."""
    good_and_damaged_shards(folder / "raw")
    run(settings)


pytestmark = pytest.mark.project(finish=three_shards)


def run(settings: Settings) -> None:
    for _ in run_shards(KEYS, stage_dag(settings).values(), settings, then=str, jobs=1):
        pass


def state(settings: Settings, key: str) -> tuple[State, str]:
    """The state of a shard, and the sentence with which it failed."""
    found = read_dataset_status(settings)
    status = found.look(key).status
    return status.state, found.problem_of(key, status)


def test_a_failure_is_kept_with_its_sentence_time_and_raw_shard(settings: Settings, tmp_path: Path) -> None:
    raw, file = tmp_path / "raw/b.tar", tmp_path / "out/failures/normalized/b.json"
    kept = json.loads(file.read_text())
    assert kept["error"].startswith(f"{raw} is not a tar")
    assert (kept["shard"], kept["stage"], kept["raw_size"]) == ("b", "normalized", raw.stat().st_size)
    assert abs(datetime.now(UTC).timestamp() - datetime.fromisoformat(kept["failed_at"]).timestamp()) < 3600
    assert state(settings, "b") == (State.FAILED, kept["error"])
    assert [path.name for path in (tmp_path / "out/failures").rglob("*.json")] == ["b.json"]


def test_a_failure_of_earlier_content_is_not_shown_and_success_removes_it(settings: Settings, tmp_path: Path) -> None:
    good_shard(tmp_path / "raw/b.tar")
    assert state(settings, "b") == (State.MISSING, "")
    run(settings)
    assert state(settings, "b") == (State.COMPLETE, "")
    assert list((tmp_path / "out/failures").rglob("*.json")) == []


def test_a_failure_of_a_shard_that_is_current_is_removed_by_the_next_run(settings: Settings, tmp_path: Path) -> None:
    store_failure("a", "filtered", RuntimeError("another run came in between"), settings.storage)
    assert state(settings, "a") == (State.COMPLETE, "")
    run(settings)
    assert [path.name for path in (tmp_path / "out/failures").rglob("*.json")] == ["b.json"]


def test_a_damaged_file_is_left_out_with_a_warning(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "out/failures/normalized/b.json").write_text("{")
    assert state(settings, "b") == (State.MISSING, "")
    assert "failures/normalized/b.json is no failure of a shard" in caplog.text


def test_forgetting_removes_it_also_of_a_shard_of_which_nothing_was_made(settings: Settings, tmp_path: Path) -> None:
    command = ["--settings", str(tmp_path / "interleaved.toml"), "forget", "--vanished", "--yes"]
    (tmp_path / "raw/b.tar").unlink()
    assert "b" not in read_dataset_status(settings).keys
    assert main(command) == 0
    assert list((tmp_path / "out/failures").rglob("*.json")) == []


def test_the_final_tar_of_a_shard_that_failed_later_stays_is_named_and_in_no_release(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raw/c.tar").write_bytes(b"no tar any more")
    run(settings)
    assert (tmp_path / "out/tars/c.tar").exists()
    told = (
        "The final tars of 1 shard were made before the shard failed: c. They stay until it is made again, and no "
        "release takes them."
    )
    command = ["--settings", str(tmp_path / "interleaved.toml")]
    assert main([*command, "status"]) == 0
    assert told in capsys.readouterr().out
    assert main([*command, "report"]) == 0
    assert told in (tmp_path / "out/dataset_report.html").read_text()
    manifest = make_release("v1", settings, incomplete=True).manifest
    assert [tar.shard for tar in manifest.tars] == ["a"]
    assert manifest.left_out == {"b": "normalized failed", "c": "normalized failed"}


@pytest.mark.system
@pytest.mark.usefixtures("s3_environment")
def test_in_a_bucket(tmp_path: Path, bucket: str) -> None:
    settings = project(tmp_path)
    storage = settings.storage.model_copy(update={"output_root": f"{bucket}/out"})
    settings = settings.model_copy(update={"storage": storage})
    good_and_damaged_shards(tmp_path / "raw")
    run(settings)
    assert state(settings, "b")[0] is State.FAILED
    good_shard(tmp_path / "raw/b.tar")
    run(settings)
    assert state(settings, "b") == (State.COMPLETE, "")
    assert read_dataset_status(settings).failures["normalized"] == {}


def test_a_raw_shard_that_is_not_known_counts_as_the_one_that_failed() -> None:
    failure = Failure(shard="a", stage="normalized", error="no", failed_at=datetime(2026, 1, 2, 3, 4, tzinfo=UTC))
    assert failure.concerns(None)
    assert failure.when == "2026-01-02 03:04 UTC"
