import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.model.errors import OptionError
from interleaved_assets.selection.positions import join_scores, match_scores

KEYS = st.tuples(st.sampled_from(["a", "b", "ä", ""]), st.integers(0, 3) | st.just(2**31 - 1))


def keyed(keys, **columns):
    return pa.table(
        {
            "sample_id": pa.array([key[0] for key in keys], pa.string()),
            "position": pa.array([key[1] for key in keys], pa.int32()),
            **columns,
        }
    )


@given(st.lists(KEYS, unique=True), st.lists(KEYS, unique=True))
def test_each_image_finds_its_scores(images, scores):
    expected = [scores.index(key) if key in scores else -1 for key in images]
    assert match_scores(keyed(images), keyed(scores)).tolist() == expected


def test_equal_keys_in_equal_order_match_straight():
    keys = [("b", 0), ("a", 1)]
    assert match_scores(keyed(keys), keyed(keys)).tolist() == [0, 1]


def test_large_strings_match_small_ones():
    images = keyed([("a", 0), ("b", 0)])
    scores = keyed([("b", 0), ("a", 0)])
    scores = scores.set_column(0, "sample_id", scores["sample_id"].cast(pa.large_string()))
    assert match_scores(images, scores).tolist() == [1, 0]


def test_a_missing_key_column_and_a_key_twice_are_named():
    with pytest.raises(OptionError, match="clip scores: no column position"):
        match_scores(keyed([("a", 0)]), keyed([("a", 0)]).drop_columns(["position"]), name="clip scores")
    with pytest.raises(OptionError, match="sample 'a', position 3 occurs twice"):
        match_scores(keyed([("a", 3)]), keyed([("a", 3), ("a", 3)]))


def test_join_keeps_rows_and_order_and_fills_missing_scores_with_null():
    scores = keyed([("a", 0), ("a", 1), ("b", 0)], sharpness=[1.0, 2.0, 3.0])
    clip = keyed([("b", 0), ("a", 0), ("c", 0)], clip_score=[0.3, 0.1, 0.9], clip_error=pa.nulls(3, pa.string()))
    joined = join_scores(scores, clip)
    assert joined.column_names == ["sample_id", "position", "sharpness", "clip_score", "clip_error"]
    assert joined["sharpness"].to_pylist() == [1.0, 2.0, 3.0]
    assert joined["clip_score"].to_pylist() == [0.1, None, 0.3]
    assert join_scores(scores, clip.slice(0, 0))["clip_score"].to_pylist() == [None] * 3


def test_join_refuses_a_column_that_both_have():
    scores = keyed([("a", 0)], sharpness=[1.0])
    with pytest.raises(OptionError, match="both score tables have the column sharpness"):
        join_scores(scores, scores)
