from pathlib import Path

import pytest

from interleaved_assets.pipeline.checks.keys_unique import judge_unique
from interleaved_assets.pipeline.checks.reads_back import judge_read_back
from interleaved_assets.pipeline.checks.rows_accounted_for import judge_balance
from interleaved_assets.pipeline.checks.rows_without_error import judge_errors
from interleaved_assets.pipeline.run.check import Basis
from interleaved_assets.pipeline.run.record import Counts
from interleaved_assets_tests.pipeline.checks.records import basis_of, record


@pytest.fixture
def basis(tmp_path: Path) -> Basis:
    return basis_of(tmp_path, "[errors]\nmax_error_rate = 0.2\n")


def test_rows_accounted_for(basis: Basis) -> None:
    good = judge_balance(record(rows_in=10, rows_out=7, dropped={"sharpness_below": 2, "sample_dropped": 1}), basis)
    assert (good.passed, good.summary) == (True, "10 rows in = 7 kept + 3 dropped with a reason")
    bad = judge_balance(record(rows_in=10, rows_out=7, dropped={"sharpness_below": 2}), basis)
    assert (bad.passed, bad.severity) == (False, "ERROR")
    assert bad.figures == {"rows_in": 10, "rows_kept": 7, "rows_dropped": 2}


@pytest.mark.parametrize(
    ("errors", "passed", "severity", "summary"),
    [
        ({}, True, "WARN", "no row has an error"),
        ({"missing_member": 1}, False, "WARN", "1 of 10 rows: 1 missing_member"),
        ({"missing_member": 2}, False, "WARN", "2 of 10 rows: 2 missing_member"),  # at the threshold, not above it
        ({"missing_member": 2, "invalid_json": 1}, False, "ERROR", "3 of 10 rows: 1 invalid_json, 2 missing_member"),
    ],
)
def test_materialization_errors(
    basis: Basis, errors: dict[str, int], passed: bool, severity: str, summary: str
) -> None:
    verdict = judge_errors(record(rows_in=10, rows_out=10, errors=errors), basis)
    assert (verdict.passed, verdict.severity, verdict.summary) == (passed, severity, summary)
    assert verdict.figures["errors"] == sum(errors.values())
    assert verdict.figures["error_rate"] == sum(errors.values()) / 10
    assert {name: verdict.figures[f"errors_{name}"] for name in errors} == errors


def test_an_empty_shard_has_no_errors(basis: Basis) -> None:
    verdict = judge_errors(record(), basis)
    assert (verdict.passed, verdict.figures["error_rate"]) == (True, 0.0)


@pytest.mark.parametrize(("keys", "samples", "passed"), [(0, 0, True), (2, 0, False), (0, 1, False)])
def test_keys_unique(basis: Basis, keys: int, samples: int, passed: bool) -> None:
    counted = {"repeated_keys": keys, "repeated_samples": samples}
    verdict = judge_unique(record(rows_out=9, counted=counted), basis)
    assert (verdict.passed, verdict.severity, verdict.figures) == (passed, "ERROR", counted)
    assert f"{keys} of 9 rows repeat the key of an earlier row" in verdict.summary or passed


def test_every_sample_is_read_back_from_the_tar(basis: Basis) -> None:
    counted = {"samples_read_back": 3, "images_read_back": 4, "bytes_read_back": 10240}
    whole = record(counts_out=Counts(rows=9, samples=3), counted=counted)
    assert judge_read_back(whole, basis).passed
    verdict = judge_read_back(whole.model_copy(update={"counts_out": Counts(rows=9, samples=4)}), basis)
    assert (verdict.passed, verdict.severity) == (False, "ERROR")
    assert verdict.figures == {"samples": 4, **counted}


@pytest.mark.parametrize("judge", [judge_unique, judge_read_back])
def test_a_record_without_the_figures_fails(basis: Basis, judge) -> None:
    verdict = judge(record(rows_out=9), basis)
    assert (verdict.passed, verdict.severity) == (False, "ERROR")
    assert verdict.summary.endswith("materialize the shard again")
