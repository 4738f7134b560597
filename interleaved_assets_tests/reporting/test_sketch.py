"""A score's distribution in fixed memory against the values themselves."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.reporting.measures import Measure, measure_of
from interleaved_assets.reporting.sketch import ScoreSketch
from interleaved_assets.selection.settings import SelectionSettings

PERCENTS = (0.0, 1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0, 100.0)


def measure(name: str, **bounds: float | None) -> Measure:
    return replace(measure_of(name, SelectionSettings()), **{"minimum": None, "maximum": None, **bounds})


def sketch_of(shown: Measure, *parts: np.ndarray) -> ScoreSketch:
    sketch = ScoreSketch(shown)
    for part in parts:
        sketch.add(part)
    return sketch


@pytest.mark.parametrize(
    ("name", "values", "tolerance"),
    [
        ("sharpness", np.random.default_rng(1).lognormal(6, 1.2, 200_000), 0.005),
        (
            "qr",
            np.where(np.random.default_rng(2).random(200_000) < 0.9, 0, np.random.default_rng(3).random(200_000)),
            0,
        ),
        ("clip", np.random.default_rng(4).normal(0.24, 0.06, 200_000), 0),
        ("own", np.random.default_rng(5).normal(-3, 40, 200_000), 0.012),
    ],
)
def test_percentiles_of_many_values_lie_within_a_bin(name: str, values: np.ndarray, tolerance: float) -> None:
    sketch = sketch_of(measure(name), *np.array_split(values, 7))
    width = (sketch.measure.high - sketch.measure.low) / 4096 if sketch.measure.scale == "linear" else 0.002
    np.testing.assert_allclose(
        sketch.percentiles(PERCENTS), np.percentile(values, PERCENTS), rtol=tolerance, atol=width
    )
    assert sketch.percentiles((0.0, 100.0)) == [values.min(), values.max()]
    assert sketch.mean == pytest.approx(values.mean())
    assert sketch.count == len(values)


@pytest.mark.parametrize("name", ["qr", "own"])
def test_a_heap_at_zero_is_not_smeared(name: str) -> None:
    values = np.concatenate([np.zeros(90_000), np.random.default_rng(9).random(10_000) * 1e-3])
    sketch = sketch_of(measure(name), values)
    assert sketch.percentiles((1.0, 50.0, 89.0)) == [0.0, 0.0, 0.0]
    assert sketch.percentiles((95.0,))[0] == pytest.approx(np.percentile(values, 95.0), abs=1e-4)
    assert sketch.at_least(np.array([0.0])).tolist() == [100_000]


def test_percentiles_of_few_values_are_exact() -> None:
    values = np.array([0.0, 0.0, 12.5, 99.9, 100.0, 640.25, 1e9])
    sketch = sketch_of(measure("sharpness"), values)
    assert sketch.percentiles(PERCENTS) == pytest.approx(np.percentile(values, PERCENTS).tolist(), rel=1e-12)


@given(st.lists(st.lists(st.floats(allow_nan=True, width=32), max_size=30), max_size=6), st.floats(1, 1000))
def test_counts_are_exact_however_the_values_are_split(parts: list[list[float]], threshold: float) -> None:
    shown = measure("sharpness", minimum=threshold)
    sketch = sketch_of(shown, *(np.array(part, np.float64) for part in parts))
    values = np.array([value for part in parts for value in part], np.float64)
    present = values[~np.isnan(values)]
    assert sketch.count == len(present)
    assert sketch.missing == len(values) - len(present)
    assert sketch.zeros == int((present == 0).sum())
    assert sketch.kept == int((present >= threshold).sum())
    if len(present):
        assert sketch.percentiles((0, 100)) == [present.min(), present.max()]
        np.testing.assert_array_equal(sketch.at_least(sketch.edges), [(present >= edge).sum() for edge in sketch.edges])
        assert sketch.histogram(np.array([0.0, 10.0, 100.0, 1e4])).sum() == len(present)


def test_the_keep_curve_agrees_with_counting() -> None:
    values = np.random.default_rng(6).lognormal(5.5, 1, 5000)
    thresholds, rates = sketch_of(measure("sharpness", minimum=100.0), values).keep_curve("minimum", (10.0, 5e3))
    assert thresholds[0] <= 10 < 5e3 <= thresholds[-1]
    assert (np.diff(thresholds) > 0).all()
    np.testing.assert_allclose(rates, [(values >= value).mean() for value in thresholds])

    areas = np.random.default_rng(7).random(3000) ** 3
    thresholds, rates = sketch_of(measure("qr", maximum=0.05), areas).keep_curve("maximum", (0.0, 1.0))
    np.testing.assert_allclose(rates, [(areas < value).mean() for value in thresholds])


def test_the_keep_curve_of_one_bound_holds_the_other() -> None:
    values = np.random.default_rng(8).lognormal(0.2, 0.5, 4000)
    shown = measure("aspect", minimum=0.5, maximum=2.0)
    thresholds, rates = sketch_of(shown, values).keep_curve("minimum", (0.3, 5.0))
    np.testing.assert_allclose(rates, [((values >= low) & (values <= 2)).mean() for low in thresholds], atol=3e-3)
    thresholds, rates = sketch_of(shown, values).keep_curve("maximum", (0.3, 5.0))
    np.testing.assert_allclose(rates, [((values >= 0.5) & (values <= high)).mean() for high in thresholds], atol=3e-3)


def test_zeros_are_below_a_logarithmic_curve() -> None:
    sketch = sketch_of(measure("ratio", minimum=0.0), np.array([0.0, 0.01, 0.5]))
    assert sketch.keep_curve("minimum", (0.001, 1.0))[1][0] == pytest.approx(2 / 3)


def test_without_values_there_is_nothing() -> None:
    sketch = sketch_of(measure("sharpness", minimum=100), np.array([]), np.array([np.nan, np.nan]))
    assert (sketch.count, sketch.missing, sketch.mean, sketch.keep_rate) == (0, 2, None, None)
    assert sketch.percentiles(PERCENTS) == []
    thresholds, rates = sketch.keep_curve("minimum", (1.0, 2.0))
    assert len(thresholds) == len(rates) == 0


def test_zeros_that_mean_something_else_are_left_out_of_a_histogram() -> None:
    values = np.array([0.0] * 50 + [0.0001, 0.1, 0.4])
    edges = np.array([0.0, 0.05, 0.2, 1.0])
    for name, counts in (("qr", [1, 1, 1]), ("nsfw", [51, 1, 1])):
        sketch = sketch_of(measure(name), values)
        assert (sketch.histogram(edges).tolist(), sketch.shown) == (counts, sum(counts))


def test_infinite_values_are_counted() -> None:
    sketch = sketch_of(measure("ratio", maximum=10), np.array([0.1, np.inf, np.inf]))
    assert sketch.kept == 1
    assert sketch.percentiles((0, 75, 100)) == [0.1, np.inf, np.inf]
