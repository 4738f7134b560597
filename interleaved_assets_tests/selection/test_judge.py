import sys

import numpy as np
import pyarrow as pa
import pytest

from interleaved_assets.model.errors import OptionError, ScoreError
from interleaved_assets.model.ledger import LEDGER_SCHEMA, check_balance
from interleaved_assets.selection.applicable import applicable_filters
from interleaved_assets.selection.judge import select
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets_tests.selection.tables import document, kept, reasons, rows_of, scores_of


def decide(rows, scores, **settings):
    selection = select(rows, scores, SelectionSettings(**settings))
    check_balance("test", rows.num_rows, selection.keep.true_count, selection.ledger)
    assert selection.ledger.schema == LEDGER_SCHEMA
    return selection


def judged(settings, **score):
    """What becomes of the image of a sample of one text and one image."""
    rows = rows_of(document("a", "ti"))
    return reasons(decide(rows, scores_of({("a", 1): score}), **settings).ledger).get(("a", 1), "kept")


BOUNDARIES = [
    # a bound, the score just at it, and one a hair beyond
    ({"min_sharpness": 100}, "sharpness", 100.0, "kept"),
    ({"min_sharpness": 100}, "sharpness", 99.999, "sharpness_below"),
    ({"min_sharpness_grey": 50}, "sharpness_grey", 50.0, "kept"),
    ({"min_sharpness_grey": 50}, "sharpness_grey", 49.999, "sharpness_grey_below"),
    ({"max_qr_area_ratio": 0.05}, "qr_area_ratio", 0.05, "qr_above"),
    ({"max_qr_area_ratio": 0.05}, "qr_area_ratio", 0.04999, "kept"),
    ({"min_aspect_ratio": 0.5, "max_aspect_ratio": 2}, "aspect_ratio", 0.5, "kept"),
    ({"min_aspect_ratio": 0.5, "max_aspect_ratio": 2}, "aspect_ratio", 2.0, "kept"),
    ({"min_aspect_ratio": 0.5, "max_aspect_ratio": 2}, "aspect_ratio", 0.499, "aspect_below"),
    ({"min_aspect_ratio": 0.5, "max_aspect_ratio": 2}, "aspect_ratio", 2.001, "aspect_above"),
    ({"min_clip": 0.15}, "clip_score", 0.15, "kept"),
    ({"min_clip": 0.15}, "clip_score", 0.1499, "clip_below"),
    ({"min_aesthetic": 4.5}, "aesthetic_score", 4.5, "kept"),
    ({"min_aesthetic": 4.5}, "aesthetic_score", 4.4999, "aesthetic_below"),
    ({"max_nsfw": 0.8}, "nsfw_score", 0.8, "nsfw_above"),
    ({"max_nsfw": 0.8}, "nsfw_score", 0.7999, "kept"),
    ({"max_nsfw_clip": 0.3}, "nsfw_clip_score", 0.3, "nsfw_clip_above"),
    ({"max_nsfw_clip": 0.3}, "nsfw_clip_score", 0.2999, "kept"),
    ({"own": {"brightness": {"min": 5, "max": 9}}}, "brightness", 5.0, "kept"),
    ({"own": {"brightness": {"min": 5, "max": 9}}}, "brightness", 9.0, "kept"),
    ({"own": {"brightness": {"min": 5, "max": 9}}}, "brightness", 4.9, "brightness_below"),
    ({"own": {"brightness": {"min": 5, "max": 9}}}, "brightness", 9.1, "brightness_above"),
]


@pytest.mark.parametrize(("settings", "column", "score", "outcome"), BOUNDARIES)
def test_boundary_values(settings, column, score, outcome):
    assert judged(settings, **{column: score}) == outcome


@pytest.mark.parametrize(
    ("width", "height", "outcome"),
    [
        (150, 20_000, "kept"),
        (149, 300, "short_side_below"),
        (300, 149, "short_side_below"),
        (150, 20_001, "long_side_above"),
    ],
)
def test_sides_in_pixels(width, height, outcome):
    assert judged({"min_short_side": 150, "max_long_side": 20_000}, width=width, height=height) == outcome


@pytest.mark.parametrize(
    ("words", "bounds", "outcome"),
    [
        (20, {"max_ratio": 0.1}, "kept"),  # 2 images for 20 words are 0.1
        (19, {"max_ratio": 0.1}, "ratio_above"),
        (20, {"min_ratio": 0.1}, "kept"),
        (21, {"min_ratio": 0.1}, "ratio_below"),
        (0, {"max_ratio": 2}, "kept"),  # no words count as one
        (0, {"max_ratio": 1.99}, "ratio_above"),
    ],
)
def test_ratio_drops_whole_samples(words, bounds, outcome):
    rows = rows_of(document("a", "iti"), {("a", 1): words})
    selection = decide(rows, scores_of({("a", 0): {}, ("a", 2): {}}), **bounds)
    found = set(reasons(selection.ledger).values())
    assert found == (set() if outcome == "kept" else {outcome})
    assert selection.keep.true_count == (4 if outcome == "kept" else 0)


def test_ledger_has_measured_values_and_thresholds():
    rows = rows_of(document("a", "tii"))
    scores = scores_of({("a", 1): {"sharpness": 12.5}, ("a", 2): {"qr_area_ratio": 0.4}})
    ledger = decide(rows, scores).ledger
    assert ledger.to_pylist() == [
        {
            "sample_id": "a",
            "position": position,
            "modality": "image",
            "stage": "filtered",
            "reason": reason,
            "measured": measured,
            "threshold": threshold,
            "detail": None,
        }
        for position, reason, measured, threshold in [(1, "sharpness_below", 12.5, 100.0), (2, "qr_above", 0.4, 0.05)]
    ]


def test_ratio_in_the_ledger_of_every_row_it_drops():
    rows = rows_of(document("a", "iti"), {("a", 1): 4})
    ledger = decide(rows, scores_of({("a", 0): {}, ("a", 2): {}}), max_ratio=0.25).ledger
    assert ledger["position"].to_pylist() == [-1, 0, 1, 2]
    assert ledger["measured"].to_pylist() == [0.5] * 4
    assert ledger["threshold"].to_pylist() == [0.25] * 4


def test_samples_within_all_bounds_are_kept():
    rows = rows_of([*document("b", "ti.x"), *document("a", "i")])
    selection = decide(rows, scores_of({("b", 1): {}, ("a", 0): {}}))
    assert selection.keep.to_pylist() == [True] * rows.num_rows
    assert selection.ledger.num_rows == 0


def test_an_image_dropped_by_one_filter_is_not_judged_by_the_next():
    rows = rows_of(document("a", "ti"))
    both = scores_of({("a", 1): {"sharpness": 1.0, "qr_area_ratio": 0.9}})
    assert reasons(decide(rows, both).ledger) == {("a", 1): "sharpness_below"}
    assert reasons(decide(rows, both, order=("qr", "sharpness")).ledger) == {("a", 1): "qr_above"}


def test_ratio_counts_what_the_filters_before_it_left():
    rows = rows_of(document("a", "tiii"))
    scores = scores_of({("a", 1): {"sharpness": 1.0}, ("a", 2): {"sharpness": 1.0}, ("a", 3): {}})
    after = decide(rows, scores, order=("sharpness", "ratio"), max_ratio=0.1)
    assert reasons(after.ledger) == {("a", 1): "sharpness_below", ("a", 2): "sharpness_below"}
    before = decide(rows, scores, order=("ratio", "sharpness"), max_ratio=0.1)
    assert set(reasons(before.ledger).values()) == {"ratio_above"}


def test_ratio_judges_samples_without_images_and_passes_over_those_without_content():
    rows = rows_of([*document("texts", "tt"), *document("nothing", "")])
    selection = decide(rows, scores_of({}), min_ratio=0.01)
    assert set(reasons(selection.ledger)) == {("texts", -1), ("texts", 0), ("texts", 1)}
    assert kept(rows, selection.keep) == [("nothing", -1)]


def test_a_sample_without_content_left_is_dropped_with_its_metadata():
    rows = rows_of([*document("a", "ii"), *document("b", "ti")])
    blurred = {"sharpness": 1.0}
    selection = decide(rows, scores_of({("a", 0): blurred, ("a", 1): {"qr_area_ratio": 1.0}, ("b", 1): blurred}))
    assert reasons(selection.ledger) == {
        ("a", -1): "sample_dropped",
        ("a", 0): "sharpness_below",
        ("a", 1): "qr_above",
        ("b", 1): "sharpness_below",
    }
    assert selection.ledger["detail"][0].as_py() == "no content is left after the image at position 1: qr_above"
    assert kept(rows, selection.keep) == [("b", -1), ("b", 0)]


def test_a_sample_that_never_had_content_is_kept():
    rows = rows_of([*document("a", ""), *document("b", "i")])
    selection = decide(rows, scores_of({("b", 0): {"sharpness": 0.0}}))
    assert kept(rows, selection.keep) == [("a", -1)]


def test_rows_of_other_modalities_are_content_and_are_not_judged():
    rows = rows_of(document("a", "ix"))
    selection = decide(rows, scores_of({("a", 0): {"sharpness": 0.0}}))
    assert kept(rows, selection.keep) == [("a", -1), ("a", 1)]


def test_on_fail_sample_drops_the_sample_and_names_the_cause():
    rows = rows_of([*document("a", "tixi"), *document("b", "ti")])
    scores = scores_of({("a", 1): {}, ("a", 3): {"qr_area_ratio": 0.2}, ("b", 1): {}})
    selection = decide(rows, scores, on_fail={"qr": "sample"})
    assert reasons(selection.ledger) == {
        ("a", -1): "sample_dropped",
        ("a", 0): "sample_dropped",
        ("a", 1): "sample_dropped",
        ("a", 2): "sample_dropped",
        ("a", 3): "qr_above",
    }
    details = selection.ledger["detail"].to_pylist()
    assert details == ["dropped with its sample, for the image at position 3: qr_above"] * 4 + [None]
    assert selection.ledger["modality"].to_pylist() == ["metadata", "text", "image", "table", "image"]


def test_the_cause_is_the_image_with_the_lowest_position():
    rows = rows_of([("a", 5, "image"), ("a", -1, "metadata"), ("a", 2, "image"), ("a", 0, "text")])
    scores = scores_of({("a", 2): {"sharpness": 1.0}, ("a", 5): {"sharpness": 2.0}})
    ledger = decide(rows, scores, on_fail={"sharpness": "sample"}).ledger
    assert ledger["position"].to_pylist() == [5, -1, 2, 0], "the ledger is in row order"
    assert ledger["detail"][1].as_py() == "dropped with its sample, for the image at position 2: sharpness_below"


UNDECODABLE = {
    "sharpness": None,
    "qr_area_ratio": None,
    "score_error": "undecodable_image: image file is truncated",
}


def test_policy_error_names_shard_sample_position_and_filter():
    rows = rows_of(document("a", "tii"))
    scores = scores_of({("a", 1): {}, ("a", 2): UNDECODABLE})
    with pytest.raises(ScoreError) as caught:
        select(rows, scores, SelectionSettings(), shard="part-7")
    assert caught.value.code == "undecodable_image"
    assert str(caught.value).startswith(
        "part-7: sample 'a', image at position 2: no score for filter 'sharpness': "
        "undecodable_image: image file is truncated."
    )
    assert "on_score_error" in str(caught.value)


def test_policy_warn_keeps_and_counts_an_image_without_score(caplog):
    rows = rows_of(document("a", "tii"))
    scores = scores_of({("a", 1): {"sharpness": None, "score_error": None}, ("a", 2): UNDECODABLE})
    selection = decide(rows, scores, on_score_error="warn", order=("sharpness",))
    assert selection.keep.true_count == 4
    assert selection.unscored == {"undecodable_image": 1, "unscored": 1}
    assert "rows kept without a score" in caplog.text


def test_an_image_without_several_scores_counts_once():
    rows = rows_of(document("a", "ti"))
    selection = decide(rows, scores_of({("a", 1): UNDECODABLE}), on_score_error="warn", order=("sharpness", "qr"))
    assert selection.filters == ("sharpness", "qr")
    assert selection.unscored == {"undecodable_image": 1}


def test_policy_drop_row_uses_the_error_code_as_reason():
    rows = rows_of(document("a", "tii"))
    selection = decide(rows, scores_of({("a", 1): {}, ("a", 2): UNDECODABLE}), on_score_error="drop_row")
    (entry,) = selection.ledger.to_pylist()
    assert (entry["position"], entry["reason"]) == (2, "undecodable_image")
    assert entry["detail"] == "undecodable_image: image file is truncated"
    assert entry["measured"] is None
    assert entry["threshold"] is None


def test_policy_drop_sample_drops_the_sample():
    rows = rows_of([*document("a", "ti"), *document("b", "t")])
    selection = decide(rows, scores_of({("a", 1): UNDECODABLE}), on_score_error="drop_sample")
    assert reasons(selection.ledger) == {
        ("a", -1): "sample_dropped",
        ("a", 0): "sample_dropped",
        ("a", 1): "undecodable_image",
    }
    assert selection.ledger["detail"][0].as_py() == (
        "dropped with its sample, for the image at position 1: undecodable_image"
    )


def test_a_sample_with_only_an_unscored_image_is_dropped():
    rows = rows_of(document("a", "i"))
    selection = decide(rows, scores_of({("a", 0): UNDECODABLE}), on_score_error="drop_row")
    assert reasons(selection.ledger) == {("a", -1): "sample_dropped", ("a", 0): "undecodable_image"}


def test_an_image_that_is_not_in_the_scores_is_unscored():
    rows = rows_of(document("a", "tii"))
    selection = decide(rows, scores_of({("a", 1): {}, ("elsewhere", 9): {}}), on_score_error="drop_row")
    (entry,) = selection.ledger.to_pylist()
    assert (entry["position"], entry["reason"]) == (2, "unscored")
    assert entry["detail"] == "unscored: sharpness not stored for this image"


def test_an_unknown_error_code_becomes_unknown():
    rows = rows_of(document("a", "ti"))
    scores = scores_of({("a", 1): {"sharpness": None, "score_error": "odd: thing"}})
    assert reasons(decide(rows, scores, on_score_error="drop_row").ledger) == {("a", 1): "unknown"}


def test_only_the_filters_that_judge_need_their_score():
    rows = rows_of(document("a", "ti"))
    failed_qr = {"qr_area_ratio": None, "score_error": "scorer_failed: qr: OpenCV raised"}
    assert decide(rows, scores_of({("a", 1): failed_qr}), order=("sharpness",)).keep.true_count == 3
    with pytest.raises(ScoreError, match="filter 'qr': scorer_failed"):
        decide(rows, scores_of({("a", 1): failed_qr}))


def test_nan_is_a_missing_score():
    rows = rows_of(document("a", "ti"))
    selection = decide(rows, scores_of({("a", 1): {"sharpness": float("nan")}}), on_score_error="drop_row")
    assert reasons(selection.ledger) == {("a", 1): "unscored"}


def test_clip_errors_are_reasons_and_no_text_has_a_setting():
    rows = rows_of([*document("a", "ii"), *document("b", "ti")])
    scores = scores_of(
        {
            ("a", 0): {"clip_error": "no_text: the sample has none"},
            ("a", 1): {"clip_error": "no_text: the sample has none"},
            ("b", 1): {"clip_error": "prescreened: sharpness 3 is below 5"},
        }
    ).append_column("clip_score", pa.nulls(3, pa.float64()))
    dropped = decide(rows, scores, on_score_error="warn")
    assert reasons(dropped.ledger) == {("a", -1): "sample_dropped", ("a", 0): "no_text", ("a", 1): "no_text"}
    assert dropped.unscored == {"prescreened": 1}
    keeping = decide(rows, scores, on_score_error="drop_row", no_text="keep")
    assert reasons(keeping.ledger) == {("b", 1): "prescreened"}
    assert keeping.unscored == {"no_text": 2}


def test_clip_without_scores_is_skipped_and_reported():
    rows, scores = rows_of(document("a", "ti")), scores_of({("a", 1): {}})
    selection = decide(rows, scores)
    assert selection.filters == ("sharpness", "qr", "ratio")
    assert selection.passed_over == ("clip",)
    assert decide(rows, scores_of({("a", 1): {"clip_score": 0.2}})).passed_over == ()


def test_other_filters_without_their_column_raise():
    with pytest.raises(OptionError, match=r"filter 'nsfw' needs the score nsfw_score.*scoring\.scorers"):
        applicable_filters(SelectionSettings(max_nsfw=0.5), scores_of({}).column_names)


def test_scores_may_come_in_any_order():
    rows = rows_of([*document("a", "tii"), *document("b", "i")])
    scores = scores_of({("a", 1): {"sharpness": 1.0}, ("a", 2): {}, ("b", 0): {"qr_area_ratio": 1.0}})
    straight = decide(rows, scores)
    shuffled = decide(rows, scores.take([2, 0, 1]))
    assert straight.keep.equals(shuffled.keep)
    assert straight.ledger.equals(shuffled.ledger)


def test_an_image_scored_twice_is_an_error():
    rows = rows_of(document("a", "ti"))
    twice = pa.concat_tables([scores_of({("a", 1): {}})] * 2)
    with pytest.raises(OptionError, match="sample 'a', position 1 occurs twice"):
        select(rows, twice)


@pytest.mark.parametrize("values", [["abc"], [[1.5]], [{"a": 1}], [2**63 - 1]])
def test_a_score_that_is_no_number_is_an_error_that_names_its_column(values: list[object]):
    scores = scores_of({("a", 1): {}})
    scores = scores.set_column(scores.column_names.index("sharpness"), "sharpness", pa.array(values))
    with pytest.raises(OptionError, match=r"^scores: column 'sharpness' is .* and cannot become double: "):
        select(rows_of(document("a", "ti")), scores)


def test_select_works_without_rows_and_without_filters():
    empty = decide(rows_of([]), scores_of({}))
    assert len(empty.keep) == 0
    rows = rows_of(document("a", "ti"))
    untouched = decide(rows, scores_of({("a", 1): UNDECODABLE}), order=())
    assert untouched.keep.true_count == 3
    assert untouched.filters == ()


@pytest.mark.parametrize("column", ["sample_id", "position", "modality", "words"])
def test_a_missing_column_of_the_rows_is_named(column):
    rows = rows_of(document("a", "ti")).drop_columns([column])
    with pytest.raises(OptionError, match=f"no column {column}"):
        select(rows, scores_of({("a", 1): {}}))


def test_large_strings_and_chunks():
    rows = rows_of([*document("a", "ti"), *document("b", "ti")])
    scores = scores_of({("a", 1): {"sharpness": 0.0}, ("b", 1): {}})
    schema = rows.schema.set(0, pa.field("sample_id", pa.large_string()))
    large = pa.concat_tables([rows.slice(0, 2), rows.slice(2)]).cast(schema)
    assert reasons(decide(large, scores).ledger) == {("a", 1): "sharpness_below"}


def test_the_ledger_has_the_given_stage():
    rows, scores = rows_of(document("a", "ti")), scores_of({("a", 1): {"sharpness": 0.0}})
    assert select(rows, scores, stage="mine").ledger["stage"].to_pylist() == ["mine"]


def python_calls(images):
    """How many functions ``decide`` calls from Python over so many images, twice as many texts and metadata."""
    rng = np.random.default_rng(0)
    documents = np.repeat(np.arange(images // 4), 9)
    modality = np.tile(["metadata", *["text", "image"] * 4], images // 4)
    rows = pa.table(
        {
            "sample_id": pa.array([f"document-{number:08d}" for number in documents]),
            "position": pa.array(np.tile(np.arange(-1, 8), images // 4), pa.int32()),
            "modality": modality.tolist(),
            "words": pa.array(rng.integers(0, 50, len(documents)), mask=modality != "text"),
        }
    )
    scores = rows.filter(pa.array(modality == "image")).select(["sample_id", "position"])
    scores = scores.append_column("sharpness", pa.array(rng.lognormal(5, 1, images)))
    scores = scores.append_column("qr_area_ratio", pa.array(np.where(rng.random(images) < 0.1, 0.3, 0.0)))
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        selection = decide(rows, scores, max_ratio=0.2, on_fail={"qr": "sample"})
    finally:
        sys.setprofile(None)
    assert 0 < selection.keep.true_count < rows.num_rows
    return calls


def test_no_row_is_looked_at_one_by_one():
    """What makes it fast, and can be said without a clock."""
    python_calls(400)  # some things are done once
    assert python_calls(40_000) < python_calls(400) + 100
