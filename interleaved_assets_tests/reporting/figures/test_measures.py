"""What each filter judges by, with the bounds it has in the settings."""

import numpy as np
import pyarrow as pa
import pytest

from interleaved_assets.reporting.figures.measures import Measure, measure_of, measures_of
from interleaved_assets.scoring.protocol.filter import ImageFilter
from interleaved_assets.scoring.protocol.settings import DocumentSettings
from interleaved_assets.selection.settings import SelectionSettings

PLAIN, OPEN = ImageFilter("m", ("m",)), ImageFilter("m", ("m",), open_maximum=True)


def test_the_measures_are_the_filters_that_judge_in_their_order() -> None:
    selection = SelectionSettings(min_short_side=32, max_aspect_ratio=3, own={"my_score": {"min": -2.5}})
    measures = measures_of(selection)[: len(selection.active_filters())]
    assert [measure.filter for measure in measures] == list(selection.active_filters())
    assert [(measure.filter, measure.rule) for measure in measures] == [
        ("short_side", "keep ≥ 32"),
        ("aspect", "keep ≤ 3"),
        ("sharpness", "keep ≥ 100"),
        ("qr", "keep < 0.05"),
        ("ratio", "keep ≥ 0"),
        ("clip", "keep ≥ 0.15"),
        ("my_score", "keep ≥ -2.5"),
    ]
    own = measures[-1]
    assert (own.columns, own.shown.scale, own.shown.label) == (("my_score",), "any", "my_score")


def test_unbounded_ones_come_last() -> None:
    selection = SelectionSettings()
    names = [measure.filter for measure in measures_of(selection)]
    assert names[: len(selection.active_filters())] == list(selection.active_filters())
    assert {"aspect", "short_side", "nsfw", "aesthetic"} <= set(names)
    assert "long_side" not in names
    assert all(not measure_of(name, selection).has_bounds for name in names[len(selection.active_filters()) :])
    assert measure_of("aspect", selection).rule == "no bound"


def test_values_of_one_and_of_two_columns() -> None:
    scores = pa.table({"width": [30, 10, None], "height": [20, 40, 5], "sharpness": [1.5, None, float("nan")]})
    selection = SelectionSettings()
    short = measure_of("short_side", selection).values(scores)
    assert short is not None
    np.testing.assert_array_equal(short, [20, 10, np.nan])
    sharpness = measure_of("sharpness", selection).values(scores)
    assert sharpness is not None
    np.testing.assert_array_equal(sharpness, [1.5, np.nan, np.nan])
    assert measure_of("qr", selection).values(scores) is None
    assert measure_of("ratio", selection).values(scores) is None


@pytest.mark.parametrize(
    ("measure", "kept"),
    [
        (Measure(PLAIN), [True, True, True, True, False]),
        (Measure(PLAIN, 1), [False, True, True, True, False]),
        (Measure(PLAIN, None, 2), [True, True, True, False, False]),
        (Measure(OPEN, None, 2), [True, True, False, False, False]),
        (Measure(PLAIN, 1, 2), [False, True, True, False, False]),
    ],
)
def test_bounds_are_inclusive_unless_the_maximum_is_open(measure: Measure, kept: list[bool]) -> None:
    assert measure.keeps(np.array([0.0, 1.0, 2.0, 3.0, np.nan])).tolist() == kept


def test_scores_of_documents_without_a_bound_are_folded_and_those_of_texts_are_left_out() -> None:
    selection = SelectionSettings(document={"words": {"min": 3}}, text={"words": {"max": 9}})
    names = [one.filter for one in measures_of(selection)]
    assert names[:2] == ["document_words", "text_words"]
    found = measures_of(selection, DocumentSettings(scorers=("words", "language", "identity")))
    assert [one.filter for one in found[: len(names)]] == names
    assert [one.filter for one in found[len(names) :]] == [
        *("document_characters", "document_images", "document_images_per_word", "document_texts"),
        *("document_longest_text", "document_language_probability"),
    ]
    assert [one.is_folded for one in found] == [False] * len(names) + [True] * 6
