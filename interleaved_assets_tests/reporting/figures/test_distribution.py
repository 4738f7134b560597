"""Counts, percentiles and keep rates of a score against NumPy on the values themselves."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.reporting.figures.distribution import Distribution
from interleaved_assets.reporting.figures.measures import Measure, measure_of
from interleaved_assets.selection.settings import SelectionSettings

PERCENTS = (0.0, 1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0, 100.0)


def measure(name: str, **bounds: float | None) -> Measure:
    return replace(measure_of(name, SelectionSettings()), **{"minimum": None, "maximum": None, **bounds})


def distribution_of(shown: Measure, *parts: np.ndarray) -> Distribution:
    distribution = Distribution(shown)
    for part in parts:
        distribution.add(part)
    return distribution


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("sharpness", np.random.default_rng(1).lognormal(6, 1.2, 20_000)),
        ("qr", np.where(np.random.default_rng(2).random(20_000) < 0.9, 0, np.random.default_rng(3).random(20_000))),
        ("clip", np.random.default_rng(4).normal(0.24, 0.06, 20_000)),
        ("own", np.random.default_rng(5).normal(-3, 40, 20_000)),
    ],
)
def test_percentiles_and_mean_are_exact_however_many_values_there_are(name: str, values: np.ndarray) -> None:
    distribution = distribution_of(measure(name), *np.array_split(values, 7))
    np.testing.assert_allclose(distribution.percentiles(PERCENTS), np.percentile(values, PERCENTS), rtol=1e-12)
    assert distribution.percentiles((0.0, 100.0)) == [values.min(), values.max()]
    assert distribution.mean == pytest.approx(values.mean())
    assert distribution.count == len(values)


def test_percentiles_of_few_values_are_exact() -> None:
    values = np.array([0.0, 0.0, 12.5, 99.9, 100.0, 640.25, 1e9])
    distribution = distribution_of(measure("sharpness"), values)
    assert distribution.percentiles(PERCENTS) == pytest.approx(np.percentile(values, PERCENTS).tolist(), rel=1e-12)


@given(st.lists(st.lists(st.floats(allow_nan=True, width=32), max_size=30), max_size=6), st.floats(1, 1000))
def test_counts_are_exact_however_the_values_are_split(parts: list[list[float]], threshold: float) -> None:
    shown = measure("sharpness", minimum=threshold)
    distribution = distribution_of(shown, *(np.array(part, np.float64) for part in parts))
    values = np.array([value for part in parts for value in part], np.float64)
    present = values[~np.isnan(values)]
    assert distribution.count == len(present)
    assert distribution.missing == len(values) - len(present)
    assert distribution.zeros == int((present == 0).sum())
    assert distribution.kept == int((present >= threshold).sum())
    if len(present):
        assert distribution.percentiles((0, 100)) == [present.min(), present.max()]
        assert distribution.histogram(np.array([0.0, 10.0, 100.0, 1e4])).sum() == len(present)


def test_the_keep_curve_agrees_with_counting() -> None:
    values = np.random.default_rng(6).lognormal(5.5, 1, 5000)
    thresholds, rates = distribution_of(measure("sharpness", minimum=100.0), values).keep_curve("minimum", (10.0, 5e3))
    assert thresholds[0] <= 10 < 5e3 <= thresholds[-1]
    assert (np.diff(thresholds) > 0).all()
    np.testing.assert_allclose(rates, [(values >= value).mean() for value in thresholds])

    areas = np.random.default_rng(7).random(3000) ** 3
    thresholds, rates = distribution_of(measure("qr", maximum=0.05), areas).keep_curve("maximum", (0.0, 1.0))
    np.testing.assert_allclose(rates, [(areas < value).mean() for value in thresholds])


def test_the_keep_curve_of_one_bound_holds_the_other() -> None:
    values = np.random.default_rng(8).lognormal(0.2, 0.5, 4000)
    shown = measure("aspect", minimum=0.5, maximum=2.0)
    thresholds, rates = distribution_of(shown, values).keep_curve("minimum", (0.3, 5.0))
    np.testing.assert_allclose(rates, [((values >= low) & (values <= 2)).mean() for low in thresholds])
    thresholds, rates = distribution_of(shown, values).keep_curve("maximum", (0.3, 5.0))
    np.testing.assert_allclose(rates, [((values >= 0.5) & (values <= high)).mean() for high in thresholds])


def test_zeros_are_below_a_logarithmic_curve() -> None:
    distribution = distribution_of(measure("ratio", minimum=0.0), np.array([0.0, 0.01, 0.5]))
    assert distribution.keep_curve("minimum", (0.001, 1.0))[1][0] == pytest.approx(2 / 3)


def test_without_values_there_is_nothing() -> None:
    distribution = distribution_of(measure("sharpness", minimum=100), np.array([]), np.array([np.nan, np.nan]))
    assert (distribution.count, distribution.missing, distribution.mean, distribution.keep_rate) == (0, 2, None, None)
    assert distribution.percentiles(PERCENTS) == []
    thresholds, rates = distribution.keep_curve("minimum", (1.0, 2.0))
    assert len(thresholds) == len(rates) == 0


def test_zeros_that_mean_something_else_are_left_out_of_a_histogram() -> None:
    values = np.array([0.0] * 50 + [0.0001, 0.1, 0.4])
    edges = np.array([0.0, 0.05, 0.2, 1.0])
    for name, counts in (("qr", [1, 1, 1]), ("nsfw", [51, 1, 1])):
        distribution = distribution_of(measure(name), values)
        assert (distribution.histogram(edges).tolist(), distribution.shown) == (counts, sum(counts))


def test_infinite_values_are_counted() -> None:
    distribution = distribution_of(measure("ratio", maximum=10), np.array([0.1, np.inf, np.inf]))
    assert distribution.kept == 1
    assert distribution.percentiles((0, 75, 100)) == [0.1, np.inf, np.inf]
