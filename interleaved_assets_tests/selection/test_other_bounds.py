import math

import numpy as np
import pytest

from interleaved_assets.model.errors import OptionError, SettingsError
from interleaved_assets.selection.judge import select
from interleaved_assets.selection.other_bounds import (
    Outcome,
    changed_settings,
    judged_samples,
    judged_values,
    keep_rates,
    what_if,
)
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets_tests.selection.tables import document, rows_of, scores_of

ROWS = rows_of([*document("a", "tii"), *document("b", "i"), *document("c", "t")], {("a", 0): 4})
SCORES = scores_of({("a", 1): {"sharpness": 90.0}, ("a", 2): {"sharpness": 300.0}, ("b", 0): {"qr_area_ratio": 0.05}})


def test_what_if_without_overrides_counts_the_current_selection():
    assert what_if(ROWS, SCORES, SelectionSettings()) == Outcome(
        rows=8,
        rows_kept=5,
        images=3,
        images_kept=1,
        samples=3,
        samples_kept=2,
        dropped={"qr_above": 1, "sample_dropped": 1, "sharpness_below": 1},
        images_dropped={"qr_above": 1, "sharpness_below": 1},
    )


def test_what_if_counts_with_other_thresholds():
    assert what_if(ROWS, SCORES, SelectionSettings(), {"min_sharpness": 90}).images_kept == 2
    assert what_if(ROWS, SCORES, SelectionSettings(), {"max_qr_area_ratio": 0.051}).samples_kept == 3
    assert what_if(ROWS, SCORES, SelectionSettings(), {"order": ["qr"]}).images_kept == 2
    assert what_if(ROWS, SCORES, SelectionSettings(), {"max_ratio": 0.1}).dropped == {
        "ratio_above": 3,
        "qr_above": 1,
        "sample_dropped": 1,
        "sharpness_below": 1,
    }


def test_outcomes_add_up():
    one = what_if(ROWS, SCORES, SelectionSettings())
    both = one + one
    assert (both.rows, both.images_kept, both.samples_kept) == (16, 2, 4)
    assert both.dropped == {"qr_above": 2, "sample_dropped": 2, "sharpness_below": 2}
    assert sum([one, one], Outcome()) == both


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"sharpness": 3}, "^sharpness: no such setting; did you mean min_sharpness"),
        ({"zzz": 3}, "^zzz: no such setting; there are document, max_aspect_ratio, "),
        ({"min_sharpness": "x"}, "min_sharpness: .*valid number"),
        ({"max_qr_area_ratio": 2}, "max_qr_area_ratio: .*less than or equal to 1"),
        ({"order": ["x"]}, "no filter named x"),
    ],
)
def test_an_override_that_is_no_setting_is_named(overrides, said):
    with pytest.raises(SettingsError, match=said):
        changed_settings(SelectionSettings(), overrides)


def test_judged_values_come_after_earlier_filters():
    settings = SelectionSettings()
    assert judged_values(ROWS, SCORES, settings, "sharpness").tolist() == [90.0, 300.0, 1000.0]
    assert judged_values(ROWS, SCORES, settings, "qr").tolist() == [0.0, 0.05]
    # sample b is gone by then; a has one image left for 4 words, c none for 10
    assert judged_values(ROWS, SCORES, settings, "ratio").tolist() == [0.25, 0.0]
    # off, and after sharpness, QR and ratio in the order
    assert judged_values(ROWS, SCORES, settings, "aspect").tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(OptionError, match="clip_score"):
        judged_values(ROWS, SCORES, settings, "clip")


def test_judged_samples_carry_the_ids_of_the_samples():
    settings = SelectionSettings(min_sharpness=100, max_qr_area_ratio=0.05)
    judged = judged_samples(ROWS, SCORES, settings, "ratio")
    values = judged_values(ROWS, SCORES, settings, "ratio")
    assert judged["ratio"].to_pylist() == values.tolist()
    assert judged["sample_id"].to_pylist() == ["a", "c"]  # QR dropped the image of b
    with pytest.raises(OptionError, match="filter 'qr' measures images, not samples"):
        judged_samples(ROWS, SCORES, settings, "qr")


def test_a_bound_on_scores_that_do_not_exist_is_an_error():
    with pytest.raises(OptionError, match="filter 'clip' needs the score clip_score"):
        what_if(ROWS, SCORES, SelectionSettings(), {"min_clip": 0.3})


def test_judged_values_of_own_filters_come_after_the_others():
    settings = SelectionSettings(own={"width": {"min": 1}})
    assert judged_values(ROWS, SCORES, settings, "width").tolist() == [500.0]


@pytest.mark.parametrize(
    ("name", "side", "rates"),
    [
        ("sharpness", "minimum", [1.0, 1.0, 0.75, 0.25, 0.0]),
        ("aspect", "maximum", [0.0, 0.25, 0.75, 1.0, 1.0]),
        ("qr", "maximum", [0.0, 0.0, 0.25, 0.75, 1.0]),
    ],
)
def test_keep_rates(name, side, rates):
    values = np.array([3.0, 1.0, 2.0, 2.0, math.nan])
    assert keep_rates(values, name, [0, 1, 2, 3, 4], side).tolist() == rates


def test_keep_rates_without_values_are_nan():
    assert np.isnan(keep_rates(np.array([math.nan]), "qr", [0.1, 0.2], "maximum")).all()


def test_keep_rates_equal_what_selection_keeps():
    rng = np.random.default_rng(3)
    rows = rows_of([row for number in range(50) for row in document(f"s{number}", "ti")])
    scores = scores_of(
        {(f"s{number}", 1): {"sharpness": float(value)} for number, value in enumerate(rng.integers(0, 9, 50))}
    )
    for threshold in range(10):
        settings = SelectionSettings(order=("sharpness",), min_sharpness=threshold)
        kept = select(rows, scores, settings).keep.true_count - 100
        values = judged_values(rows, scores, settings, "sharpness")
        assert keep_rates(values, "sharpness", [threshold], "minimum")[0] == pytest.approx(kept / 50)


def test_keep_rates_refuses_another_side():
    with pytest.raises(OptionError, match="keep_rates: side must be minimum or maximum, got 'below'"):
        keep_rates(np.array([1.0]), "sharpness", [1.0], "below")


def test_another_order_switches_off_the_filters_that_it_does_not_name() -> None:
    bounded = SelectionSettings(min_sharpness=60, max_aspect_ratio=3)
    changed = changed_settings(bounded, {"order": ["aspect"]})
    assert changed.active_filters() == ("aspect",)
    with pytest.raises(SettingsError, match="min_sharpness is set, and order does not name the filter 'sharpness'"):
        changed_settings(bounded, {"order": ["aspect"], "min_sharpness": 50})
