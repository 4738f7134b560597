from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from interleaved_assets.pipeline.checks.every_image_scored import judge_complete
from interleaved_assets.pipeline.checks.scores_in_range import judge_ranges
from interleaved_assets.pipeline.run.check import Basis
from interleaved_assets.pipeline.run.record import Counts, Extent
from interleaved_assets.scoring.protocol.registry import register_scorer, unregister_scorer
from interleaved_assets.scoring.protocol.scorer import Range, Scorer
from interleaved_assets_tests.pipeline.checks.records import basis_of, record


@pytest.fixture
def basis(tmp_path: Path) -> Basis:
    return basis_of(tmp_path, stage="image_scores")


def extent(low: float, high: float, not_finite: int = 0) -> Extent:
    return Extent(values=5, not_finite=not_finite, low=low, high=high)


def test_every_image_scored(basis: Basis) -> None:
    counted = {"rows_without_score_or_reason": 0}
    whole = record(
        counts_in=Counts(rows=5, images=5), rows_out=5, errors={"undecodable_image": 1}, counted=counted
    ).model_copy(update={"counts_out": Counts(rows=5)})
    assert judge_complete(whole, basis).passed
    verdict = judge_complete(whole.model_copy(update={"counts_out": Counts(rows=4)}), basis)
    assert (verdict.passed, verdict.severity) == (False, "ERROR")
    assert verdict.figures == {"images": 5, "score_rows": 4, "without_score": 1, "image_members": 5, **counted}


def test_nothing_to_score_fails_where_there_are_images(basis: Basis) -> None:
    counted = {"rows_without_score_or_reason": 0, "image_members": 0}
    assert judge_complete(record(counted=counted), basis).passed
    verdict = judge_complete(record(counted=counted | {"image_members": 7}), basis)
    assert (verdict.passed, verdict.severity) == (False, "ERROR")
    assert verdict.summary.startswith("nothing to score: all 7 images of the shard are named by no document")


def test_a_row_with_neither_score_nor_reason_is_not_complete(basis: Basis) -> None:
    silent = record(
        counts_in=Counts(rows=5, images=5), counts_out=Counts(rows=5), counted={"rows_without_score_or_reason": 2}
    )
    verdict = judge_complete(silent, basis)
    assert (verdict.passed, verdict.summary.endswith(", 2 with neither")) == (False, True)


def test_image_scores_in_range(basis: Basis) -> None:
    good = record(extents={"width": extent(1, 9), "aspect_ratio": extent(0.5, 2), "sharpness": extent(0, 1e6)})
    verdict = judge_ranges(good, basis)
    assert (verdict.passed, verdict.summary) == (True, "3 columns of scores within their ranges")
    assert (verdict.figures["sharpness_min"], verdict.figures["sharpness_max"]) == (0, 1e6)


@pytest.mark.parametrize(
    ("column", "reaches", "problem"),
    [
        ("width", extent(0, 9), "width: values from 0 to 9, outside of 1 to any"),
        ("aspect_ratio", extent(0, 2), "aspect_ratio: values from 0 to 2, outside of above 0 to any"),
        ("sharpness", extent(-0.5, 2), "sharpness: values from -0.5 to 2, outside of 0 to any"),
        ("sharpness", extent(1, 2, not_finite=3), "sharpness: 3 of 5 values are not finite"),
        ("sharpness", Extent(values=5, not_finite=5), "sharpness: 5 of 5 values are not finite"),
        ("qr_area_ratio", extent(0, 1.01), "qr_area_ratio: values from 0 to 1.01, outside of 0 to 1"),
        ("qr_area_ratio", extent(0, 1.00000012), "qr_area_ratio: values from 0 to 1.0000001, outside of 0 to 1"),
        ("own", extent(0, 1, not_finite=1), "own: 1 of 5 values are not finite"),
    ],
)
def test_image_scores_out_of_range(basis: Basis, column: str, reaches: Extent, problem: str) -> None:
    verdict = judge_ranges(record(extents={"height": extent(1, 2), column: reaches}), basis)
    assert (verdict.passed, verdict.severity, verdict.summary) == (False, "ERROR", problem)
    assert verdict.figures["columns_out_of_range"] == 1


@pytest.fixture
def own_scorer() -> Iterator[None]:
    register_scorer(Scorer("own", {"own": pa.float64()}, lambda _: lambda _: 0.0, ranges={"own": Range(0, 255)}))
    yield
    unregister_scorer("own")


def test_a_custom_scorer_declares_its_range(own_scorer: None, tmp_path: Path) -> None:
    basis = basis_of(tmp_path, '[scoring]\nscorers = ["own"]\n[selection]\norder = []\n', "image_scores")
    assert judge_ranges(record(extents={"own": extent(0, 255)}), basis).passed
    verdict = judge_ranges(record(extents={"own": extent(0, 256)}), basis)
    assert (verdict.passed, verdict.summary) == (False, "own: values from 0 to 256, outside of 0 to 255")


@pytest.mark.parametrize(
    ("column", "reaches", "passed"),
    [
        ("clip_score", extent(-1, 1), True),
        ("clip_score", extent(-1, 1.1), False),
        ("clip_text_position", extent(-1, 3), False),
        ("embedding", extent(0.9995, 1.0005), True),
        ("embedding", extent(0, 1), False),
        ("nsfw_clip_score", extent(0, 1), True),
        ("nsfw_clip_score", extent(0, 1.5), False),  # behind a sigmoid
        ("aesthetic_score", extent(-3, 11), True),
    ],
)
def test_clip_scores_in_range(tmp_path: Path, column: str, reaches: Extent, passed: bool) -> None:
    heads = '[clip.heads.a]\npath = "a.pth"\nkind = "aesthetic"\n[clip.heads.n]\npath = "n.pth"\nkind = "nsfw"\n'
    basis = basis_of(tmp_path, f"[clip]\nenabled = true\nmodel = 'm'\npretrained = 'p'\n{heads}", "clip_scores")
    verdict = judge_ranges(record(extents={column: reaches}), basis)
    assert (verdict.passed, verdict.figures["columns_out_of_range"]) == (passed, int(not passed))


@pytest.mark.parametrize("judge", [judge_complete, judge_ranges])
def test_a_record_without_the_figures_fails(basis: Basis, judge) -> None:
    assert not judge(record(rows_in=5, rows_out=5), basis).passed
