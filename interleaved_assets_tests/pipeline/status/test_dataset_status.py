"""The status of every shard with a raw shard, a record or a registered partition."""

import os
import shutil
from pathlib import Path

import pytest

from interleaved_assets.defs.checks import judge_raw_root
from interleaved_assets.pipeline.lineage.sample import find_sample
from interleaved_assets.pipeline.lineage.tar import trace_tar
from interleaved_assets.pipeline.raw.listing import list_raw_shards
from interleaved_assets.pipeline.raw.snapshot import compare_with_snapshot, write_snapshot
from interleaved_assets.pipeline.run.stored_records import recorded_stages
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status.dataset_status import (
    VANISHED,
    VANISHED_UNUSED,
    DatasetStatus,
    read_dataset_status,
)
from interleaved_assets.pipeline.status.status import COMPLETE, State
from interleaved_assets.settings import Settings, load_settings
from interleaved_assets_tests.documents import STAGES, good_shard, project, refuse_listing, stages_before
from interleaved_assets_tests.projects import take_all
from interleaved_assets_tests.s3 import S3Server

pytestmark = pytest.mark.project(shards={"a": ord("a"), "web/b": ord("b"), "c": ord("c")}, done=("a", "web/b"))
REPLACED = "its files are not those that were recorded; they were deleted, replaced or copied, or a run is writing them"


def statuses(found: DatasetStatus) -> dict[str, str]:
    return {key: found.status(key, found.valid_records(key)).text for key in found.keys}


def test_records_are_listed_with_their_stages(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "out/records/final_tars/web/b.json").unlink()
    (tmp_path / "out/records/normalized/.a.json.0123.tmp").write_text("left by a run that was killed")
    assert recorded_stages(settings.storage, stage_dag(settings)) == {
        "a": [*STAGES],
        "web/b": [*stages_before("final_tars")],
    }


def test_nothing_was_ever_recorded(tmp_path: Path) -> None:
    settings = project(tmp_path)
    assert recorded_stages(settings.storage, stage_dag(settings)) == {}


def test_a_shard_in_a_folder_that_cannot_be_listed_has_not_vanished(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_listing(monkeypatch, tmp_path / "raw/web")
    found = read_dataset_status(settings)
    assert statuses(found) == {"a": "complete", "c": "never materialized", "web/b": "complete"}
    assert found.problem.startswith(f"cannot list {tmp_path}/raw/web: Permission denied. ")
    verdict = judge_raw_root(settings.storage, None, 0.0)
    assert (verdict.passed, verdict.severity, verdict.summary) == (False, "ERROR", found.problem)


def test_every_kind_of_shard(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "raw/web/b.tar").unlink()
    found = read_dataset_status(settings, registered=["a", "gone"])
    assert statuses(found) == {
        "a": "complete",
        "c": "never materialized",
        "gone": VANISHED_UNUSED.text,
        "web/b": VANISHED.text,
    }
    assert found.problem == ""
    assert found.status("a", found.valid_records("a")) == COMPLETE


def test_failed_and_never_materialized_shards_have_different_statuses(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "out/records/filtered/a.json").unlink()
    failed = {"normalized": {"c"}, "filtered": {"a", "web/b"}, "final_tars": {"a"}}
    found = read_dataset_status(settings, failed=failed)
    assert statuses(found) == {
        "a": "filtered failed",
        "c": "normalized failed",
        "web/b": "complete",  # its record is valid, although its last run failed
    }
    assert found.status("a", found.valid_records("a")).state is State.FAILED


def test_a_file_written_again_with_the_same_bytes_is_current_after_the_next_snapshot(
    settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "raw/c.tar").unlink()
    good_shard(tmp_path / "raw/web/b.tar", seed=9)
    for name in ("a", "web/b"):
        os.utime(tmp_path / f"raw/{name}.tar", (5, 5))
    changed = "normalized stale: raw_shards changed"
    assert statuses(read_dataset_status(settings)) == {"a": changed, "web/b": changed}
    storage = settings.storage
    seen = compare_with_snapshot(list_raw_shards(storage), {}, storage, now=100, quiet_seconds=0, at_most=9)
    write_snapshot(seen.snapshot, {}, storage, None)
    assert statuses(read_dataset_status(settings)) == {"a": "complete", "web/b": changed}
    os.utime(tmp_path / "raw/a.tar", (6, 6))  # after that snapshot
    assert statuses(read_dataset_status(settings)) == {"a": changed, "web/b": changed}


def test_an_output_that_was_deleted_or_replaced_makes_its_stage_missing(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "out/dropped/filtered/a.parquet").unlink()
    (tmp_path / "out/image_scores/web/b.parquet").write_bytes(b"another")
    assert statuses(read_dataset_status(settings)) == {
        "a": f"no filtered: {REPLACED}",
        "c": "never materialized",
        "web/b": f"no image_scores: {REPLACED}",
    }


def test_a_copied_output_root_does_not_count_as_never_materialized(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "out").rename(tmp_path / "original")
    shutil.copytree(tmp_path / "original", tmp_path / "out", copy_function=shutil.copy)
    found = statuses(read_dataset_status(settings))
    assert found == {
        "a": f"no normalized: {REPLACED}",
        "c": "never materialized",
        "web/b": f"no normalized: {REPLACED}",
    }


def test_a_damaged_snapshot_counts_as_empty(settings: Settings, tmp_path: Path) -> None:
    snapshot = tmp_path / "out/state/raw_shards.parquet"
    snapshot.parent.mkdir(parents=True)
    snapshot.write_bytes(b"PAR1")
    assert read_dataset_status(settings).versions == {}


def test_statuses_without_the_raw_root_come_from_the_records(settings: Settings, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "raw")
    found = read_dataset_status(settings, registered=["c"])
    assert "does not exist" in found.problem
    assert str(tmp_path / "raw") in found.problem
    assert statuses(found) == {"a": "complete", "c": "never materialized", "web/b": "complete"}


def test_in_a_bucket(tmp_path: Path, bucket: str, s3_environment: S3Server) -> None:
    (tmp_path / "interleaved.toml").write_text(f'[storage]\nraw_root = "{bucket}/raw"\noutput_root = "{bucket}/out"\n')
    settings = load_settings(tmp_path / "interleaved.toml")
    for name in ("a", "b c"):
        s3_environment.fs.put_file(str(good_shard(tmp_path / f"{name}.tar", seed=1)), f"{bucket}/raw/{name}.tar")
    assert statuses(read_dataset_status(settings)) == {"a": "never materialized", "b%20c": "never materialized"}
    take_all(settings, "b%20c")
    assert statuses(read_dataset_status(settings)) == {"a": "never materialized", "b%20c": "complete"}
    s3_environment.fs.rm_file(f"{bucket}/raw/b c.tar")
    found = read_dataset_status(settings)
    assert found.recorded == {"b%20c": [*STAGES]}
    assert statuses(found) == {"a": "never materialized", "b%20c": VANISHED.text}
    trace = trace_tar(f"{bucket}/out/tars/b%20c.tar", settings)
    assert trace.source is not None
    assert trace.source.uri == f"{bucket}/raw/b c.tar"
    assert trace.as_recorded
    assert [
        key for key, _ in find_sample("doc-1-b", sorted(found.recorded), settings.storage, stage_dag(settings))
    ] == ["b%20c"]
