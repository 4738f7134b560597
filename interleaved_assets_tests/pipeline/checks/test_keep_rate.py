from pathlib import Path

import pytest

from interleaved_assets.pipeline.checks.keep_rate_within_bounds import evenly, judge_keep_rate, keep_rates_of
from interleaved_assets.pipeline.run.record import Counts, Record, write_record
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import project
from interleaved_assets_tests.pipeline.checks.records import basis_of, record

STAGE = stage_dag(Settings())["filtered"]


def kept(rows: int, of: int = 10, shard: str = "a") -> Record:
    return record(shard, stage=STAGE.name, rows_in=of, rows_out=rows)


@pytest.mark.parametrize(
    ("rows", "passed", "said"), [(2, True, "20.0% of 10 rows kept;"), (1, False, "10.0% of 10 rows kept, outside")]
)
def test_fixed_bounds(tmp_path: Path, rows: int, passed: bool, said: str) -> None:
    basis = basis_of(tmp_path, "[checks]\nmin_keep_rate = 0.2\nmax_keep_rate = 0.9\n", "filtered")
    verdict = judge_keep_rate(kept(rows), basis)
    assert (verdict.passed, verdict.severity) == (passed, "WARN" if passed else "ERROR")
    assert verdict.summary.startswith(said)
    assert verdict.summary.endswith("0 other shards are too few to compare with")
    assert verdict.figures == {"keep_rate": rows / 10, "other_shards": 0}
    above = judge_keep_rate(kept(10), basis)
    assert (above.passed, above.severity) == (False, "WARN")


def test_few_rows_are_not_said_to_be_none_nor_most_to_be_all(tmp_path: Path) -> None:
    basis = basis_of(tmp_path, "[checks]\nmax_keep_rate = 0.9999\n", "filtered")
    assert judge_keep_rate(kept(29_999, of=30_000), basis).summary.startswith(
        "99.997% of 30000 rows kept, outside of 5.0% to 99.99%"
    )
    assert judge_keep_rate(kept(1, of=30_000), basis).summary.startswith("0.003% of 30000 rows kept, outside of 5.0%")
    assert judge_keep_rate(kept(0, of=30_000), basis).summary.startswith("0.0% of 30000 rows kept")


def test_a_rate_below_its_bound_is_not_shown_as_the_bound(tmp_path: Path) -> None:
    found = judge_keep_rate(kept(4_996, of=100_000), basis_of(tmp_path, "[checks]\n", "filtered"))
    assert found.summary.startswith("4.996% of 100000 rows kept, outside of 5.0% to 100.0%")


def test_a_shard_that_loses_nearly_all_images_is_an_error_by_default_whatever_the_others_lose(tmp_path: Path) -> None:
    found = kept(60, of=100).model_copy(
        update={"counts_in": Counts(rows=100, images=50), "counts_out": Counts(rows=60, images=2)}
    )
    verdict = judge_keep_rate(found, basis_of(tmp_path, others={str(number): 0.6 for number in range(9)}))
    assert (verdict.passed, verdict.severity, verdict.figures["image_keep_rate"]) == (False, "ERROR", 0.04)
    assert "60.0% of 100 rows kept, 4.0% of 50 images, below 5.0%" in verdict.summary
    found = found.model_copy(update={"counts_out": Counts(rows=4, images=4)})
    assert judge_keep_rate(found, basis_of(tmp_path)).severity == "ERROR"


def test_a_keep_rate_far_from_the_median_of_other_shards_is_a_warning(tmp_path: Path) -> None:
    others = {"b": 0.8, "c": 0.82, "d": 0.79, "e": 0.8, "f": 0.0}  # one odd shard does not move the median
    basis = basis_of(tmp_path, others=others)
    near = judge_keep_rate(kept(6), basis)
    assert (near.passed, near.summary) == (True, "60.0% of 10 rows kept; the median of 5 other shards is 80.0%")
    assert near.figures["distance_from_median"] == pytest.approx(0.2)
    assert judge_keep_rate(kept(5), basis).passed  # as far as is allowed
    far = judge_keep_rate(kept(4), basis)
    assert (far.passed, far.figures["median_keep_rate"]) == (False, 0.8)
    assert "40.0% from the median, more than 30.0%" in far.summary


def test_a_shard_is_not_compared_with_itself_nor_with_too_few(tmp_path: Path) -> None:
    others = {"a": 0.8, "b": 0.8, "c": 0.8, "d": 0.8, "e": 0.8}
    verdict = judge_keep_rate(kept(1), basis_of(tmp_path, others=others))
    assert (verdict.passed, verdict.figures["other_shards"]) == (True, 4)
    assert (
        judge_keep_rate(kept(1), basis_of(tmp_path, "[checks]\nmin_other_shards = 4\n", "filtered", others)).passed
        is False
    )


def test_a_shard_without_rows_passes(tmp_path: Path) -> None:
    assert judge_keep_rate(kept(0, of=0), basis_of(tmp_path, "[checks]\nmin_keep_rate = 0.5\n", "filtered")).passed


def write(settings: Settings, found: Record, code_version: str) -> None:
    uri = settings.storage.shard(found.shard).record(STAGE.name)
    write_record(found.model_copy(update={"code_version": code_version}), uri, {})


def test_other_shards_are_read_from_their_records(tmp_path: Path) -> None:
    settings = project(tmp_path)
    version = STAGE.code_version(settings)
    write(settings, kept(8, shard="b"), version)
    write(settings, kept(0, of=0, shard="empty"), version)
    write(settings, kept(3, shard="old"), "1-other-settings")
    broken = tmp_path / "out/records/filtered/broken.json"
    broken.write_text("{}")
    assert keep_rates_of(["b", "broken", "empty", "never", "old"], STAGE, settings) == {"b": 0.8}


def test_no_more_records_are_read_than_settings_allow(tmp_path: Path) -> None:
    settings = project(tmp_path, "[checks]\nother_shards = 3\n")
    keys = [f"{number:02}" for number in range(12)]
    for key in keys:
        write(settings, kept(8, shard=key), STAGE.code_version(settings))
    assert list(keep_rates_of(keys, STAGE, settings)) == ["00", "04", "08"]
    assert evenly(keys, 0) == []
    assert evenly(keys, 12) == keys
