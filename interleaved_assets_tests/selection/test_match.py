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


@pytest.mark.parametrize("dtype", [pa.int64(), pa.int8(), pa.float64(), pa.string(), pa.decimal128(12)])
def test_positions_of_other_types_match(dtype: pa.DataType):
    images = keyed([("a", 0), ("b", 3)])
    scores = keyed([("b", 3), ("a", 0)])
    assert match_scores(images, scores.set_column(1, "position", scores["position"].cast(dtype))).tolist() == [1, 0]


def test_ids_that_are_numbers_match_their_text_and_a_null_matches_nothing():
    scores = keyed([("7", 0), ("8", 0)]).set_column(0, "sample_id", pa.array([7, 8]))
    assert match_scores(keyed([("8", 0), ("9", 0)]), scores).tolist() == [1, -1]
    nulls = scores.set_column(1, "position", pa.nulls(2, pa.int64()))
    assert match_scores(keyed([("8", 0), ("7", -1)]), nulls).tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("column", "values", "types"),
    [
        ("position", pa.array([0.5]), "double and cannot become int32: Float value 0.5"),
        ("position", pa.array([2**33]), "int64 and cannot become int32: Integer value 8589934592 not in range"),
        ("position", pa.array(["first"]), "string and cannot become int32: Failed to parse string: 'first'"),
        ("sample_id", pa.array([["a"]]), "list<.*> and cannot become string: Unsupported cast"),
    ],
)
def test_a_key_of_a_type_that_does_not_fit_is_named(column: str, values: pa.Array, types: str):
    scores = keyed([("a", 0)])
    scores = scores.set_column(scores.column_names.index(column), column, values)
    with pytest.raises(OptionError, match=f"my scores: column '{column}' is {types}"):
        match_scores(keyed([("a", 0)]), scores, name="my scores")


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
