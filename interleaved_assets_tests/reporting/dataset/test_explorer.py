"""Thresholds of the explorer against the values themselves."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.reporting.dataset.explorer import STEPS, Slider, sliders
from interleaved_assets.reporting.figures.distribution import Distribution
from interleaved_assets.reporting.figures.measures import measure_of
from interleaved_assets.selection.settings import OwnBounds, SelectionSettings


def explored(name: str, values: np.ndarray, settings: SelectionSettings | None = None) -> list[Slider]:
    settings = settings or SelectionSettings()
    distribution = Distribution(measure_of(name, settings))
    for part in np.array_split(values, 3):
        distribution.add(part)
    return sliders([distribution], settings)


def assert_exact(slider: Slider, values: np.ndarray) -> None:
    """Every step drops as many values as the bound at its threshold does."""
    plain = replace(measure_of(slider.name, SelectionSettings()), minimum=None, maximum=None)
    known = values[~np.isnan(values)]
    for threshold, dropped in slider.steps:
        bounded = replace(plain, **{slider.side: float(threshold)})
        assert np.count_nonzero(~bounded.keeps(known)) == dropped, (slider.setting, threshold)


@pytest.mark.parametrize("name", ["sharpness_256", "qr", "aspect", "clip", "short_side", "ratio", "brightness"])
def test_counts_are_exact_at_every_step(name: str) -> None:
    rng = np.random.default_rng(1)
    values = {
        "short_side": rng.integers(40, 4000, 3000).astype(float),
        "clip": rng.normal(0.2, 0.1, 3000),
        "qr": np.where(rng.random(3000) < 0.9, 0, rng.random(3000)),
        "brightness": rng.normal(0, 100, 3000),
    }.get(name, np.round(rng.lognormal(0, 2, 3000), 3))
    values[::50] = np.nan
    settings = SelectionSettings(own={"brightness": OwnBounds(min=-3)}) if name == "brightness" else None
    found = explored(name, values, settings)
    assert found
    for slider in found:
        assert_exact(slider, values)
        assert 100 < len(slider.steps) <= STEPS
        assert [step.threshold for step in slider.steps] == sorted(step.threshold for step in slider.steps)
        assert (slider.values, slider.missing) == (2940, 60)


@given(st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.1000001, 1.0, 3.0, 3.0000001, 100.0, 1e5, 1e9]), min_size=1))
def test_equal_and_extreme_values(values: list[float]) -> None:
    for name in ("aspect", "sharpness", "qr", "ratio", "brightness"):
        for slider in explored(name, np.array(values)):
            assert_exact(slider, np.array(values))


def test_thresholds_are_round_and_allowed_by_the_settings() -> None:
    values = np.array([12.0, 41.3, 99.7, 104.2, 803.0, 5000.0])
    [slider] = explored("sharpness", values)
    between = [step.threshold for step in slider.steps if step.dropped == 3]
    assert 100 in between
    assert max(len(str(threshold)) for threshold in between) <= 5
    [whole] = explored("short_side", np.array([64.0, 65.0, 66.0, 200.0]))
    assert all(isinstance(step.threshold, int) for step in whole.steps)
    [open_maximum] = explored("qr", np.array([0.0, 0.5, 1.0]))
    assert all(0 <= step.threshold <= 1 for step in open_maximum.steps)


def test_bounds_in_force_are_exact_within_a_bin() -> None:
    values = 100 + np.linspace(-0.05, 0.05, 101)  # all in one bin
    [slider] = explored("sharpness", values)
    assert slider.in_force == (100.0, int(np.count_nonzero(values < 100)))
    [low, high] = explored("aspect", np.array([0.1, 1.0, 9.0, 9.0]), SelectionSettings(max_aspect_ratio=3))
    assert (low.in_force, high.in_force) == (None, (3.0, 2))


def test_settings_that_filters_have() -> None:
    names = {
        slider.setting: slider.sign for name in ("aspect", "qr", "my.own") for slider in explored(name, np.arange(9.0))
    }
    assert names == {
        "min_aspect_ratio": "≥",
        "max_aspect_ratio": "≤",
        "max_qr_area_ratio": "<",
        "own.my.own.min": "≥",
        "own.my.own.max": "≤",
    }
    # a bound on a filter that the order leaves out is refused
    assert explored("aspect", np.arange(9.0), SelectionSettings(order=("sharpness",))) == []
    assert explored("sharpness", np.array([])) == []
    assert explored("sharpness", np.array([np.nan])) == []


def test_the_axis_has_thresholds_of_stops_from_the_first_to_the_last() -> None:
    (slider, *_) = explored("sharpness_256", np.random.default_rng(2).gamma(2, 100, 3000))
    thresholds = [step.threshold for step in slider.steps]
    assert (slider.ticks[0], slider.ticks[-1], len(slider.ticks)) == (thresholds[0], thresholds[-1], 5)
    assert set(slider.ticks) <= set(thresholds)


def test_sliders_of_documents_and_texts() -> None:
    values = np.array([0.0, 3.0, 40.0, 40.0, 2000.0])
    for name, setting in (("document_words", "document.words"), ("text_words", "text.words")):
        low, high = explored(name, values)
        assert (low.setting, high.setting, low.unit) == (f"{setting}.min", f"{setting}.max", setting.partition(".")[0])
        assert_exact(low, values)
        assert_exact(high, values)
        assert all(isinstance(step.threshold, int) for step in (*low.steps, *high.steps))  # as the values are
    shares = np.array([0.0, 0.25, 1.0])
    assert any(isinstance(step.threshold, float) for step in explored("document_top_word", shares)[0].steps)
