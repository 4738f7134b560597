from pathlib import Path

import pytest

from interleaved_assets.pipeline.checks import judge_balance, judge_errors, judge_scores
from interleaved_assets.pipeline.record import Counts, OutputFile, Record
from interleaved_assets_tests.documents import project


def record(rows_in: int, rows_out: int, dropped: dict[str, int], errors: dict[str, int]) -> Record:
    return Record(
        stage="normalized",
        shard="a",
        code_version="1-x",
        inputs={},
        data_version="v",
        outputs={"rows": OutputFile(uri="a", size=1, sha256="0")},
        settings={},
        counts_in=Counts(rows=rows_in),
        counts_out=Counts(rows=rows_out),
        dropped=dropped,
        errors=errors,
    )


def test_rows_accounted_for(tmp_path: Path) -> None:
    settings = project(tmp_path)
    good = judge_balance(record(10, 7, {"sharpness_below": 2, "sample_dropped": 1}, {}), settings)
    assert (good.passed, good.summary) == (True, "10 rows in = 7 kept + 3 dropped with a reason")
    bad = judge_balance(record(10, 7, {"sharpness_below": 2}, {}), settings)
    assert (bad.passed, bad.severity) == (False, "ERROR")
    assert bad.figures == {"rows_in": 10, "rows_kept": 7, "rows_dropped": 2}


@pytest.mark.parametrize(
    ("errors", "passed", "severity", "summary"),
    [
        ({}, True, "WARN", "no row has an error"),
        ({"missing_member": 1}, False, "WARN", "1 of 10 rows: 1 missing_member"),
        ({"missing_member": 2, "invalid_json": 1}, False, "ERROR", "3 of 10 rows: 1 invalid_json, 2 missing_member"),
    ],
)
def test_materialization_errors(
    tmp_path: Path, errors: dict[str, int], passed: bool, severity: str, summary: str
) -> None:
    settings = project(tmp_path, "[errors]\nmax_error_rate = 0.2\n")
    verdict = judge_errors(record(10, 10, {}, errors), settings)
    assert (verdict.passed, verdict.severity, verdict.summary) == (passed, severity, summary)
    assert verdict.figures["errors"] == sum(errors.values())
    assert verdict.figures["error_rate"] == sum(errors.values()) / 10


def test_an_empty_shard_has_no_errors(tmp_path: Path) -> None:
    verdict = judge_errors(record(0, 0, {}, {}), project(tmp_path))
    assert (verdict.passed, verdict.figures["error_rate"]) == (True, 0.0)


def test_every_image_scored(tmp_path: Path) -> None:
    settings = project(tmp_path)
    whole = record(5, 5, {}, {"undecodable_image": 1}).model_copy(update={"counts_in": Counts(rows=5, images=5)})
    assert judge_scores(whole, settings).passed
    lacking = whole.model_copy(update={"counts_out": Counts(rows=4)})
    verdict = judge_scores(lacking, settings)
    assert (verdict.passed, verdict.severity) == (False, "ERROR")
    assert verdict.figures == {"images": 5, "score_rows": 4, "without_score": 1}
