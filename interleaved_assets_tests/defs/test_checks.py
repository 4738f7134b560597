"""Each check in real runs: what it says of a good shard, and of one in which something is wrong."""

import errno
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionResolvedStatus
from dagster._core.storage.asset_check_state import AssetCheckState

from interleaved_assets.defs import shard_events
from interleaved_assets.defs.build import build_definitions
from interleaved_assets.defs.checks import RAW_ROOT_CHECK
from interleaved_assets.defs.demo import register_all
from interleaved_assets.defs.partitions import SHARDS, shards
from interleaved_assets.io.formats.registry import TAR
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.model.errors import SettingsError
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.scoring.protocol.registry import register_scorer, unregister_scorer
from interleaved_assets.scoring.protocol.scorer import Range, Scorer
from interleaved_assets.settings import Settings
from interleaved_assets_tests.defects import change_members, lose_first_row, lose_first_score, stand_in
from interleaved_assets_tests.defs.runs import (
    STAGES,
    Ran,
    check_key,
    check_result,
    definitions_of,
    materialized,
    run_chain,
)
from interleaved_assets_tests.documents import (
    blurred_image,
    document,
    good_shard,
    project,
    stages_before,
    with_downstream,
    write_shard,
)
from interleaved_assets_tests.io.formats.registered import in_place_of
from interleaved_assets_tests.layouts import foreign_tar
from interleaved_assets_tests.system_calls import failing

TO_NORMALIZED, TO_SCORES, TO_FILTERED = STAGES[:1], stages_before("filtered"), stages_before("final_tars")
TWO_SHARDS_DONE = pytest.mark.project(shards={"a": 1, "b": 2}, done="ab")
CHECKS = {name: {check.name for check in stage.checks} for name, stage in stage_dag(Settings()).items()}


def run(instance: dg.DagsterInstance, folder: Path, settings: str = "", stages: Sequence[str] = STAGES) -> Ran:
    """One run in this process over the shards a and b, made unless they are there."""
    loaded = project(folder, settings)
    for name in ("a", "b"):
        if not (folder / f"raw/{name}.tar").exists():
            good_shard(folder / f"raw/{name}.tar", seed=ord(name))
    register_all(instance, loaded.storage)
    return run_chain(instance, loaded, ["a", "b"], stages)


def shown(instance: dg.DagsterInstance, asset: str, check: str) -> Mapping[str, set[str]]:
    """What the UI shows for each partition of a check."""
    key = check_key(asset, check)
    with partition_loading_context(dynamic_partitions_store=instance):
        state: AssetCheckState = instance.event_log_storage.get_asset_check_state([(key, shards)])[key]
    names = {AssetCheckExecutionResolvedStatus.SUCCEEDED: "passed", AssetCheckExecutionResolvedStatus.FAILED: "failed"}
    return {
        name: set(state.subsets[status].subset_value.get_partition_keys())  # type: ignore[union-attr]
        for status, name in names.items()
        if not state.subsets[status].is_empty
    }


def written(folder: Path) -> dict[Path, int]:
    """When each output was written."""
    return {path: path.stat().st_mtime_ns for ending in ("parquet", "tar") for path in folder.rglob(f"*.{ending}")}


def test_every_check_of_a_good_shard_passes_and_the_ui_shows_it(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    assert run(instance, tmp_path).success
    graph = build_definitions(project(tmp_path)).resolve_asset_graph()
    specs = {key: graph.get_check_spec(key) for key in graph.asset_check_keys}
    for asset in STAGES:
        assert {key for key in specs if key.asset_key == dg.AssetKey(asset)} == {
            check_key(asset, check) for check in (*CHECKS[asset], "up_to_date")
        }
        for check in CHECKS[asset]:
            found = check_result(instance, asset, check, "a")
            assert (found.passed, shown(instance, asset, check)) == (True, {"passed": {"a", "b"}})
            description = str(specs[check_key(asset, check)].description)
            assert len(description) > 60
            assert ("`" + check + "`" in description) == (check != "keep_rate_within_bounds")
            assert found.severity == ""
    assert check_result(instance, "filtered", "rows_accounted_for", "a").description == (
        "13 rows in = 12 kept + 1 dropped with a reason"
    )
    assert check_result(instance, "final_tars", "reads_back", "a").description == (
        "webdataset reads 3 of 3 samples with 4 images, equal to those written"
    )
    assert check_result(instance, "image_scores", "scores_in_range", "a").description.endswith("within their ranges")
    assert check_result(instance, "filtered", "keep_rate_within_bounds", "a").figures == {
        "keep_rate": round(12 / 13, 4),
        "image_keep_rate": 0.8,
        "other_shards": 1,
    }
    # unchanged shards are checked again from their records
    made = written(tmp_path / "out")
    assert len(made) > 2 * len(STAGES)
    assert run(instance, tmp_path).success
    assert written(tmp_path / "out") == made
    for asset in STAGES:
        for check in CHECKS[asset]:
            assert shown(instance, asset, check) == {"passed": {"a", "b"}}


def test_schema_and_keys(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    def to_large(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index("content_type")
        return table.set_column(at, "content_type", table["content_type"].cast(pa.large_string()))

    def changed(uri: str, options: ReadOptions) -> Iterator[pa.Table]:
        for table in TAR.read(uri, options):
            if uri.endswith("a.tar"):
                yield pa.concat_tables([table, table.slice(table.num_rows - 2)])
            else:
                yield to_large(table)

    with in_place_of(TAR, replace(TAR, read=changed)):
        run(instance, tmp_path, stages=TO_NORMALIZED)
    found = check_result(instance, "normalized", "schema_canonical", "b")
    assert (found.passed, found.severity) == (False, "ERROR")
    assert found.description == "content_type is large_string, not string"
    assert check_result(instance, "normalized", "schema_canonical", "a").passed
    found = check_result(instance, "normalized", "keys_unique", "a")
    assert (found.passed, found.figures) == (False, {"repeated_keys": 2, "repeated_samples": 0})
    assert check_result(instance, "normalized", "keys_unique", "b").passed
    assert materialized(instance, "normalized") == {"a", "b"}


def test_a_foreign_layout_and_a_cut_tar_fail_their_checks(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    project(tmp_path)
    cut = good_shard(tmp_path / "raw/a.tar")
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 6])
    (tmp_path / "raw/b.tar").write_bytes(foreign_tar("img2dataset"))
    assert not run(instance, tmp_path, '[errors]\non_materialize_error = "drop_row"\n').success
    found = check_result(instance, "normalized", "layout_as_expected", "b")
    assert (found.passed, found.severity) == (False, "ERROR")
    assert str(found.description).startswith("not materialized: shard b: 20 of 20 samples yield no text and no image")
    found = check_result(instance, "normalized", "rows_without_error", "a")
    assert (found.passed, found.severity) == (False, "ERROR")
    assert "a.tar: truncated_shard: the tar is cut at byte" in str(found.description)
    assert {asset: materialized(instance, asset) for asset in STAGES} == {asset: set() for asset in STAGES}
    assert not (tmp_path / "out/tars").exists()


def test_rows_that_are_lost_fail_the_shard(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_first_row(monkeypatch, "b")
    assert not run(instance, tmp_path).success
    found = check_result(instance, "normalized", "rows_accounted_for", "b")
    assert (found.passed, str(found.description).startswith("not materialized: shard b, normalized: 13 rows")) == (
        False,
        True,
    )
    assert shown(instance, "normalized", "rows_accounted_for") == {"passed": {"a"}, "failed": {"b"}}
    assert {asset: materialized(instance, asset) for asset in STAGES} == {asset: {"a"} for asset in STAGES}


def test_a_failed_check_shows_although_an_older_materialization_is_there(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(instance, tmp_path, stages=TO_NORMALIZED).success
    good_shard(tmp_path / "raw/b.tar", seed=99)
    lose_first_row(monkeypatch, "b")
    assert not run(instance, tmp_path, stages=TO_NORMALIZED).success
    assert shown(instance, "normalized", "rows_accounted_for") == {"passed": {"a"}, "failed": {"b"}}


def test_an_image_without_a_row_of_scores(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_first_score(monkeypatch)
    run(instance, tmp_path, '[selection]\non_score_error = "drop_row"\n', TO_FILTERED)
    found = check_result(instance, "image_scores", "every_image_scored", "a")
    assert (found.passed, found.severity) == (False, "ERROR")
    assert found.description == "4 rows for 5 images, 0 of them with a reason instead of a score"
    missing = check_result(instance, "filtered", "rows_without_error", "a")
    assert (missing.passed, missing.figures["errors_unscored"]) == (False, 1)


def test_a_missing_score_fails_the_check_of_the_selection(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_first_score(monkeypatch)
    assert not run(instance, tmp_path, '[selection]\non_score_error = "error"\n', TO_FILTERED).success
    found = check_result(instance, "filtered", "rows_without_error", "b")
    assert (found.passed, found.severity) == (False, "ERROR")
    assert "not materialized: b: sample" in str(found.description)
    assert materialized(instance, "filtered") == set()


@pytest.fixture
def brightness() -> Iterator[None]:
    scorer = Scorer(
        "brightness", {"brightness": pa.float64()}, lambda _: lambda image: float(image.max()), ranges={
            "brightness": Range(0, 200)
        }
    )  # fmt: skip
    register_scorer(scorer)
    yield
    unregister_scorer("brightness")


def test_scores_out_of_range(tmp_path: Path, instance: dg.DagsterInstance, brightness: None) -> None:
    write_shard(tmp_path / "raw/b.tar", {"doc": document("text", blurred_image(level=128))})
    assert run(instance, tmp_path, '[scoring]\nscorers = ["sharpness", "qr", "brightness"]\n', TO_SCORES).success
    found = check_result(instance, "image_scores", "scores_in_range", "a")
    assert (found.passed, found.severity) == (False, "ERROR")
    assert found.description == "brightness: values from 128 to 255, outside of 0 to 200"
    assert found.figures["brightness_max"] == 255
    assert shown(instance, "image_scores", "scores_in_range") == {"passed": {"b"}, "failed": {"a"}}


def blurred_shard(path: Path) -> None:
    write_shard(path, {"doc": document("text", *(blurred_image() for _ in range(8)))})


def test_a_shard_far_from_the_others_warns(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    for number in range(5):
        good_shard(tmp_path / f"raw/other-{number}.tar", seed=number)
    blurred_shard(tmp_path / "raw/first.tar")
    settings = project(tmp_path)
    keys = register_all(instance, settings.storage)
    # shards of one run are compared with each other
    assert run_chain(instance, settings, keys, TO_FILTERED).success
    assert shown(instance, "filtered", "keep_rate_within_bounds") == {
        "passed": {f"other-{number}" for number in range(5)},
        "failed": {"first"},
    }
    # those of another run are compared with what the first has recorded
    blurred_shard(tmp_path / "raw/b.tar")
    assert run(instance, tmp_path, "[checks]\nmin_keep_rate = 0\n", TO_FILTERED).success
    far = check_result(instance, "filtered", "keep_rate_within_bounds", "b")
    assert (far.passed, far.severity) == (False, "WARN")
    assert far.figures["other_shards"] == 7
    assert far.figures["median_keep_rate"] == round(12 / 13, 4)
    assert far.figures["keep_rate"] == 2 / 10
    near = check_result(instance, "filtered", "keep_rate_within_bounds", "a")
    assert (near.passed, near.figures["distance_from_median"]) == (True, 0.0)
    assert materialized(instance, "filtered") == {*keys, "a", "b"}
    # other settings are no basis
    assert run(
        instance, tmp_path, "[checks]\nmin_keep_rate = 0\n[selection]\nmin_sharpness = 99\n", TO_FILTERED
    ).success
    found = check_result(instance, "filtered", "keep_rate_within_bounds", "b")
    assert (found.passed, found.figures) == (
        True,
        {"keep_rate": 0.2, "image_keep_rate": 0.0, "other_shards": 1},
    )


def test_fixed_bounds_of_the_keep_rate(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    assert run(instance, tmp_path, "[checks]\nmin_keep_rate = 0.95\n", TO_FILTERED).success
    found = check_result(instance, "filtered", "keep_rate_within_bounds", "a")
    assert (found.passed, found.severity) == (False, "ERROR")
    assert str(found.description).startswith("92.3% of 13 rows kept, outside of 95.0% to 100.0%")
    with pytest.raises(SettingsError, match=r"min_keep_rate 0\.9 is above max_keep_rate 0\.5"):
        project(tmp_path, "[checks]\nmin_keep_rate = 0.9\nmax_keep_rate = 0.5\n")


def test_a_tar_that_does_not_read_back_fails_the_shard(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(tar: str, name: str, content: bytes) -> tuple[str, bytes]:
        is_spoilt = "/b.tar" in tar and "png" in name
        return name, b"\x89PNG" + bytes(len(content) - 4) if is_spoilt else content

    change_members(monkeypatch, spoil)
    assert not run(instance, tmp_path).success
    found = check_result(instance, "final_tars", "reads_back", "b")
    assert (found.passed, found.severity) == (False, "ERROR")
    assert "texts or bytes of images differ" in str(found.description)
    assert shown(instance, "final_tars", "reads_back") == {"passed": {"a"}, "failed": {"b"}}
    assert materialized(instance, "final_tars") == {"a"}
    assert {path.name for path in (tmp_path / "out/tars").iterdir()} == {"a.tar"}
    monkeypatch.undo()
    assert run(instance, tmp_path).success
    assert shown(instance, "final_tars", "reads_back") == {"passed": {"a", "b"}}


def test_a_check_with_a_defect_costs_its_shard_and_no_other(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = shard_events.shard_metadata

    def broken(outcome: Any, *others: Any) -> Any:
        if (outcome.record.stage, outcome.record.shard) == ("image_scores", "a"):
            raise KeyError("no such figure")
        return metadata(outcome, *others)

    stand_in(monkeypatch, shard_events, "shard_metadata", broken)
    result = run(instance, tmp_path)
    assert not result.success
    skipped = [f"\na: {stage} was skipped because image_scores failed: KeyError: 'no such" for stage in STAGES]
    assert any(line in result.summary for line in skipped)
    assert "image_scores, shard a: KeyError: 'no such figure'" in result.errors
    assert {asset: materialized(instance, asset) for asset in STAGES} == {
        asset: {"b"} if asset in with_downstream("image_scores") else {"a", "b"} for asset in STAGES
    }


@TWO_SHARDS_DONE
def test_a_shard_whose_record_cannot_be_read_is_not_compared_with(
    settings: Settings, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    good_shard(tmp_path / "raw/c.tar", seed=3)
    register_all(instance, settings.storage)
    assert run_chain(instance, settings, ["a", "b"]).success
    with failing("open", "/out/records/filtered/a.json", OSError(errno.EIO, "the disk is away")):
        ran = run_chain(instance, settings, ["c"])
    assert (ran.success, ran.errors) == (True, [])
    assert check_result(instance, "filtered", "keep_rate_within_bounds", "c").figures["other_shards"] == 1


def figures(found: dg.AssetCheckEvaluation) -> dict[str, Any]:
    return {name: value.value for name, value in found.metadata.items()}


def check_raw_root(instance: dg.DagsterInstance, settings: Settings) -> dg.AssetCheckEvaluation:
    """Launch the check alone, as the UI and the schedule do."""
    job = definitions_of(settings).resolve_implicit_global_asset_job_def()
    alone = job.get_subset(asset_selection=set(), asset_check_selection={RAW_ROOT_CHECK})
    (found,) = alone.execute_in_process(instance=instance).get_asset_check_evaluations()
    return found


def test_raw_root(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    settings = project(tmp_path, "[checks]\nmax_raw_age_hours = 1\n")
    shard = good_shard(tmp_path / "raw/a.tar")
    fresh = check_raw_root(instance, settings)
    assert (fresh.passed, figures(fresh)["shards"], figures(fresh)["bytes"]) == (True, 1, shard.stat().st_size)
    assert isinstance(fresh.metadata["newest_landed"], dg.TimestampMetadataValue)
    assert figures(fresh)["newest_landed"] == pytest.approx(shard.stat().st_mtime)
    os.utime(shard, (time.time() - 7200,) * 2)
    old = check_raw_root(instance, settings)
    assert (old.passed, old.severity.value, round(figures(old)["age_hours"], 2)) == (False, "WARN", 2.0)
    assert len(str(figures(old)["age_hours"])) <= len("2.0001")  # the UI shows every digit


def up_to_date(instance: dg.DagsterInstance, settings: Settings) -> dict[str, dg.AssetCheckEvaluation]:
    """Run the job of the schedule; by stage, what the check says."""
    job = definitions_of(settings).resolve_job_def("daily_report")
    found = job.execute_in_process(instance=instance).get_asset_check_evaluations()
    return {evaluation.asset_key.path[-1]: evaluation for evaluation in found if evaluation.check_name == "up_to_date"}


@TWO_SHARDS_DONE
def test_stale_shards_turn_the_mark_of_their_stages_alone(
    tmp_path: Path, settings: Settings, instance: dg.DagsterInstance
) -> None:
    register_all(instance, settings.storage)
    assert {stage: found.description for stage, found in up_to_date(instance, settings).items()} == dict.fromkeys(
        STAGES, "all 2 shards are current"
    )
    found = up_to_date(instance, project(tmp_path, "[selection]\nmin_sharpness = 80\n"))
    stale = with_downstream("filtered")
    assert {stage: evaluation.passed for stage, evaluation in found.items()} == {
        stage: stage not in stale for stage in STAGES
    }
    why = "filtered stale: settings changed: min_sharpness 100.0 → 80.0"
    assert found["final_tars"].description == f"2 of 2 shards are not current: 2 {why}"
    assert found["final_tars"].severity is dg.AssetCheckSeverity.WARN
    (line,) = found["final_tars"].metadata["not_current"].records
    assert line.data == {"state": "stale", "why": why, "shards": 2, "for example": "a, b"}
    latest = instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(dg.AssetKey("filtered"), "up_to_date"))
    assert latest is not None
    assert latest.partition is None


def test_a_failed_shard_has_its_error_in_the_check(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    settings = project(tmp_path)
    (tmp_path / "raw").mkdir(exist_ok=True)
    (tmp_path / "raw/bad.tar").write_bytes(b"no tar" * 200)
    run_chain(instance, settings, register_all(instance, settings.storage))
    (line,) = up_to_date(instance, settings)["final_tars"].metadata["not_current"].records
    assert line.data["why"] == (
        f"normalized failed: {tmp_path}/raw/bad.tar is not a tar: its first 512 bytes are not a tar header"
    )


@TWO_SHARDS_DONE
def test_runs_over_many_shards_leave_the_check_to_its_schedule(
    settings: Settings, instance: dg.DagsterInstance
) -> None:
    register_all(instance, settings.storage)
    definitions = definitions_of(settings)
    instance.add_dynamic_partitions(SHARDS, [f"another-{number}" for number in range(1000)])
    assert up_to_date(instance, settings).keys() == set(STAGES)
    alone = definitions.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance, asset_selection=[dg.AssetKey("final_tars")], partition_key="a"
    )
    assert "up_to_date" not in {found.check_name for found in alone.get_asset_check_evaluations()}


@TWO_SHARDS_DONE
def test_shards_that_have_vanished_are_counted(
    tmp_path: Path, settings: Settings, instance: dg.DagsterInstance
) -> None:
    register_all(instance, settings.storage)
    (tmp_path / "raw/b.tar").unlink()
    assert figures(check_raw_root(instance, settings))["vanished_shards"] == 1


def test_a_raw_root_that_is_empty_or_gone(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    settings = project(tmp_path, "[checks]\nmax_raw_age_hours = 1\n")
    empty = check_raw_root(instance, settings)
    assert (empty.passed, empty.severity.value) == (False, "WARN")
    assert empty.description == f"no shard below {tmp_path / 'raw'}"
    (tmp_path / "raw").rmdir()
    gone = check_raw_root(instance, settings)
    assert (gone.passed, gone.severity.value) == (False, "ERROR")
    assert f"raw root {tmp_path / 'raw'} does not exist" in str(gone.description)


def test_the_daily_report_runs_the_check_of_the_raw_root(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    repository = build_definitions(project(tmp_path, '[watch]\nreport = "5 * * * *"\n')).get_repository_def()
    schedule = repository.get_schedule_def("daily_report")
    assert schedule.cron_schedule == "5 * * * *"
    result = repository.get_job(schedule.job_name).execute_in_process(instance=instance)
    passed = {found.check_name: found.passed for found in result.get_asset_check_evaluations()}
    assert passed[RAW_ROOT_CHECK.name] is False
