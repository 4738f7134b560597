"""Casts of nested columns, including those where Arrow's cast fails."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.model.casting import cast_column, concat_unified, may_share, plain_type, with_columns

NULLS = pa.list_(pa.null())
THREE = [[None, None, None], None, [], [None]]


def cast(values: pa.Array, dtype: pa.DataType) -> pa.ChunkedArray:
    result = cast_column(pa.chunked_array([values]), dtype)
    result.validate(full=True)
    assert result.type == dtype
    return result


def test_casting_to_the_same_type_returns_the_column() -> None:
    column = pa.chunked_array([pa.array(THREE)])
    assert cast_column(column, NULLS) is column


@pytest.mark.parametrize(
    ("values", "before", "after"),
    [
        ([{"x": [None] * 3, "y": 1}, None], [("x", NULLS), ("y", pa.int64())], [("x", NULLS), ("y", pa.float64())]),
        ([{"x": [None] * 3}, None], [("x", NULLS)], [("x", NULLS), ("e", pa.null())]),
        ([{"x": {"z": [None]}, "y": 1}], [("x", pa.struct([("z", NULLS)])), ("y", pa.int8())], None),
    ],
)
def test_structs_beside_lists_of_nulls(values: list, before: list, after: list | None) -> None:
    after = after or [(name, pa.string() if name == "y" else dtype) for name, dtype in before]
    found = cast(pa.array(values, pa.struct(before)), pa.struct(after)).to_pylist()
    for row, expected in zip(found, values, strict=True):
        assert (row is None) == (expected is None)
        if expected is not None:
            assert row["x"] == expected["x"]
            assert row.get("y") in (None, expected.get("y"), str(expected.get("y")))


@pytest.mark.parametrize("wrap", [pa.list_, pa.large_list, lambda dtype: pa.list_(dtype, 2)])
def test_lists_of_structs_with_lists_of_nulls(wrap) -> None:
    before = wrap(pa.struct([("x", NULLS), ("y", pa.int32())]))
    after = wrap(pa.struct([("x", NULLS), ("y", pa.int64())]))
    value = [{"x": [None, None, None], "y": 1}, {"x": None, "y": None}]
    array = pa.array([value, None, value, value], before)
    for part in (array, array.slice(1), array.slice(1, 2)):
        assert cast(part, after).to_pylist() == part.to_pylist()


def test_maps_to_nulls() -> None:
    before = pa.map_(pa.string(), pa.struct([("x", NULLS), ("y", pa.int32())]))
    after = pa.map_(pa.string(), pa.struct([("x", NULLS), ("y", pa.int64())]))
    array = pa.array([[("k", {"x": [None] * 3, "y": 1}), ("l", None)], None, []], before)
    for part in (array, array.slice(1), array.slice(0, 1)):
        assert cast(part, after).to_pylist() == part.to_pylist()


def test_casts_without_null_types_are_left_to_arrow() -> None:
    assert cast(pa.array([1, None]), pa.string()).to_pylist() == ["1", None]
    assert cast(pa.array([None, None]), pa.list_(pa.int8())).to_pylist() == [None, None]
    with pytest.raises(pa.ArrowInvalid, match="300 not in range"):
        cast(pa.array([300]), pa.int8())


def test_lists_of_another_length_are_not_cast() -> None:
    with pytest.raises((pa.ArrowTypeError, pa.ArrowInvalid), match="3"):
        cast(pa.array([[None, None]], pa.list_(pa.null(), 2)), pa.list_(pa.null(), 3))


def test_a_table_is_cast_column_by_column() -> None:
    table = pa.table({"a": pa.array([1]), "b": pa.array([[None]])})
    schema = pa.schema([("a", pa.int8()), ("b", NULLS)])
    assert with_columns(table, schema).schema == schema


def test_tables_of_different_columns_are_concatenated() -> None:
    first = pa.table({"a": pa.array([{"x": [None] * 3, "y": 1}]), "b": pa.array([1], pa.int8())})
    second = pa.table({"a": pa.array([{"x": [None], "y": 1.5}]), "c": ["z"]})
    joined = concat_unified([first, second])
    joined.validate(full=True)
    assert joined.to_pydict() == {
        "a": [{"x": [None] * 3, "y": 1.0}, {"x": [None], "y": 1.5}],
        "b": [1, None],
        "c": [None, "z"],
    }
    with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError)):
        concat_unified([first, pa.table({"b": ["text"]})])


leaf = st.none() | st.integers(-5, 5) | st.floats(allow_nan=False, width=32) | st.text(max_size=2)
values = st.recursive(
    leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner), max_leaves=8
)


@given(st.lists(values, min_size=1, max_size=4), st.lists(values, min_size=1, max_size=4))
def test_joined_json_columns_are_valid_arrays(first: list, second: list) -> None:
    try:
        tables = [pa.table({"a": pa.array(rows)}) for rows in (first, second)]
        joined = concat_unified(tables)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return  # Arrow has no one type for them
    joined.validate(full=True)
    assert joined.num_rows == len(first) + len(second)
    assert [value is None for value in joined["a"].to_pylist()] == [value is None for value in first + second]


LIST_VIEWS = [
    (pa.list_view(pa.int32()), pa.list_(pa.int32()), [[1], None, [], [2, 3]]),
    (pa.large_list_view(pa.string()), pa.large_list(pa.string()), [["a"], None, [], ["b", None]]),
    (
        pa.struct([("x", pa.list_view(pa.list_view(pa.string())))]),
        pa.struct([("x", pa.list_(pa.list_(pa.string())))]),
        [{"x": [["a"], None]}, None, {"x": None}],
    ),
]


@pytest.mark.parametrize(("before", "after", "values"), LIST_VIEWS, ids=lambda it: str(it)[:16])
def test_list_views_become_lists(before: pa.DataType, after: pa.DataType, values: list) -> None:
    array = pa.array(values, before)
    assert cast(array, after).to_pylist() == values
    assert cast(array.slice(1), after).to_pylist() == values[1:]


def test_a_list_view_in_another_order_than_its_values() -> None:
    views = pa.ListViewArray.from_arrays(pa.array([2, 0, 0], pa.int32()), pa.array([1, 2, 1], pa.int32()), [7, 8, 9])
    assert cast(views, pa.list_(pa.int64())).to_pylist() == [[9], [7, 8], [7]]


STORED_OTHERWISE = {
    "strings": (pa.array(["a", None, "c" * 40], pa.string_view()), pa.string()),
    "bytes": (pa.array([b"a", None, b"c" * 40], pa.binary_view()), pa.binary()),
    "struct": (
        pa.array([{"q": "a"}, None, {"q": None}], pa.struct([("q", pa.string_view())])),
        pa.struct([("q", pa.string())]),
    ),
    "list": (pa.array([["a"], None, []], pa.list_(pa.string_view())), pa.list_(pa.string())),
    "map": (
        pa.array([[("a", "b")], None, []], pa.map_(pa.string(), pa.string_view())),
        pa.map_(pa.string(), pa.string()),
    ),
    "pairs": (pa.array([["a", None], None, ["b", "c"]], pa.list_(pa.string_view(), 2)), pa.list_(pa.string(), 2)),
    "runs": (pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", None])), pa.string()),
    "list view": (pa.array([["a"], None, []], pa.list_view(pa.string_view())), pa.list_(pa.string())),
    "dictionary": (pa.array(["a", None, "a"]).dictionary_encode(), pa.string()),
}


@pytest.mark.parametrize("name", STORED_OTHERWISE)
def test_other_ways_to_store_values_become_plain(name: str) -> None:
    array, plain = STORED_OTHERWISE[name]
    assert plain_type(array.type) == plain
    assert plain_type(plain) == plain
    assert (may_share(array.type), may_share(plain)) == (True, False)
    found = cast(array, plain)
    found.validate(full=True)
    assert (found.type, found.to_pylist()) == (plain, array.to_pylist())
    assert cast(array.slice(1), plain).to_pylist() == array.to_pylist()[1:]


def test_values_may_share_bytes_in_extension_types_too() -> None:
    assert not may_share(pa.json_(pa.string()))
    assert may_share(pa.json_(pa.string_view()))
    assert may_share(pa.list_(pa.json_(pa.string_view())))
    assert may_share(pa.struct([("x", pa.opaque(pa.dictionary(pa.int8(), pa.string()), "a", "b"))]))
    assert may_share(pa.dense_union([pa.field("x", pa.string())]))


def test_a_dictionary_of_views_is_decoded() -> None:
    # as the categories of polars are
    values = pa.array(["x", "y"], pa.string_view())
    array = pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0], pa.uint32()), values)
    for dtype in (pa.string_view(), pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.large_string())):
        assert cast(array, dtype).to_pylist() == ["x", None, "y", "x"]
        assert cast(array.slice(1), dtype).to_pylist() == [None, "y", "x"]
