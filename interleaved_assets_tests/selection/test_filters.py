import numpy as np
import pytest

from interleaved_assets.model.errors import OptionError
from interleaved_assets.scoring.protocol.filter import Display, ImageFilter, SampleFilter
from interleaved_assets.selection.filters import (
    BUILT_IN,
    find_filter,
    known_filters,
    register_filter,
    unregister_filter,
)
from interleaved_assets.selection.judge import select
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets_tests.selection.tables import document, reasons, rows_of, scores_of


@pytest.fixture
def own_filters():
    register_filter(ImageFilter("pixels", ("width", "height"), combine=np.multiply, open_maximum=True))
    register_filter(SampleFilter("texts", lambda samples: samples.texts.astype(np.float64)))
    yield
    unregister_filter("pixels")
    unregister_filter("texts")


def test_a_custom_image_filter_takes_one_line(own_filters):
    rows = rows_of(document("a", "tiii"))
    scores = scores_of({("a", 1): {"width": 1}, ("a", 2): {"width": 20}, ("a", 3): {}})
    settings = SelectionSettings(own={"pixels": {"min": 5_000, "max": 250_000}}, on_fail={"pixels": "image"})
    selection = select(rows, scores, settings)
    assert reasons(selection.ledger) == {("a", 1): "pixels_below", ("a", 3): "pixels_above"}
    assert selection.ledger["measured"].to_pylist() == [500.0, 250_000.0]


def test_a_custom_sample_filter_takes_one_line(own_filters):
    rows = rows_of([*document("a", "ti"), *document("b", "tti")])
    scores = scores_of({("a", 1): {}, ("b", 2): {}})
    selection = select(rows, scores, SelectionSettings(own={"texts": {"min": 2}}))
    assert reasons(selection.ledger) == {("a", position): "texts_below" for position in (-1, 0, 1)}


def test_a_column_of_scores_needs_no_registration():
    rows = rows_of(document("a", "tii"))
    scores = scores_of({("a", 1): {"watermark": 0.9}, ("a", 2): {"watermark": None, "clip_error": "no_text: none"}})
    settings = SelectionSettings(own={"watermark": {"max": 0.5}})
    assert reasons(select(rows, scores, settings).ledger) == {("a", 1): "watermark_above", ("a", 2): "no_text"}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda *_: 1 / 0, "filter 'odd': its function fails: ZeroDivisionError: division by zero"),
        (lambda *_: None, r"filter 'odd': its function returns an array of \(\) and not of \(1,\)"),
        (lambda *_: np.ones(3), r"filter 'odd': its function returns an array of \(3,\) and not of \(1,\)"),
    ],
)
@pytest.mark.parametrize("kind", ["image", "sample"])
def test_a_function_that_fails_is_named(kind, function, message):
    of_images = ImageFilter("odd", ("width", "height"), combine=function)
    register_filter(of_images if kind == "image" else SampleFilter("odd", function))
    try:
        with pytest.raises(OptionError, match=message):
            select(rows_of(document("a", "ti")), scores_of({("a", 1): {}}), SelectionSettings(own={"odd": {"min": 1}}))
    finally:
        unregister_filter("odd")


@pytest.mark.parametrize("columns", ["width", ("width", "height"), ()])
def test_columns_are_names_with_a_function_of_several(columns):
    with pytest.raises(OptionError, match="filter 'odd': columns has to be a tuple, with combine= if it has several"):
        ImageFilter("odd", columns)


@pytest.mark.parametrize(("low", "scale"), [(0, "log"), (1, "cubic")])
def test_a_display_that_cannot_be_drawn_is_refused(low, scale):
    with pytest.raises(OptionError, match="Width: scale is one of linear, log, any, and of log, low is above 0"):
        Display("Width", "w", low, 10, scale=scale)


def test_names_are_unique():
    with pytest.raises(OptionError, match="filter 'qr': the name is taken"):
        register_filter(ImageFilter("qr", ("x",)))


def test_unregistered_filters_are_unknown():
    assert known_filters() == tuple(BUILT_IN)
    assert find_filter("anything") == ImageFilter(
        "anything", ("anything",), error_columns=("clip_error", "score_error")
    )
