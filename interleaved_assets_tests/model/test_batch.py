"""The batch: conversions, validation, adding and deleting rows."""

import dataclasses
import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.model import InterleavedBatch
from interleaved_assets.model.errors import OptionError
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets.model.source_ref import SourceRef, build_source_ref

KEYS = [("a", -1, "metadata"), ("a", 0, "text"), ("a", 2, "image"), ("b", 0, "image"), ("b", 1, "table")]


def table(keys: list[tuple[str, int, str]] = KEYS, **passthrough: list) -> pa.Table:
    rows = [
        {
            "sample_id": name,
            "position": position,
            "modality": kind,
            "text_content": f"text {position}" if kind == "text" else None,
            "binary_content": bytes(position) if kind == "image" else None,
        }
        for name, position, kind in keys
    ]
    result = pa.Table.from_pylist(rows, INTERLEAVED_SCHEMA)
    for name, values in passthrough.items():
        result = result.append_column(name, pa.array(values))
    return result


def keys(batch: InterleavedBatch) -> list[tuple[str, int, str]]:
    rows = batch.to_pyarrow().select(["sample_id", "position", "modality"]).to_pylist()
    return [tuple(row.values()) for row in rows]


@pytest.fixture(params=["arrow", "pandas"])
def batch(request: pytest.FixtureRequest) -> InterleavedBatch:
    rows = table(score=[None, 1, 2, 3, None], tags=[["x"], [], None, ["y"], ["z"]])
    as_arrow = InterleavedBatch(rows, ("/raw/s.tar",))
    return as_arrow if request.param == "arrow" else InterleavedBatch(as_arrow.to_pandas(), ("/raw/s.tar",))


# ---------------------------------------------------------------- views


def test_both_views_have_the_same_rows(batch: InterleavedBatch) -> None:
    found = batch.to_pyarrow()
    assert found.to_pylist() == table(score=[None, 1, 2, 3, None], tags=[["x"], [], None, ["y"], ["z"]]).to_pylist()
    assert [field.type for field in found.schema] == [*INTERLEAVED_SCHEMA.types, pa.int64(), pa.list_(pa.string())]
    # integers with nulls stay integers
    assert batch.to_pandas()["score"].tolist()[1:4] == [1, 2, 3]
    assert str(batch.to_pandas()["score"].dtype) == "int64[pyarrow]"
    assert batch.get_columns() == [*INTERLEAVED_SCHEMA.names, "score", "tags"]


def test_to_pyarrow_returns_the_held_table() -> None:
    rows = table()
    assert InterleavedBatch(rows).to_pyarrow() is rows
    frame = rows.to_pandas()
    assert InterleavedBatch(frame).to_pandas() is frame


def coded(*indices: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(["x", "y"]), safe=False)


def test_a_damaged_dictionary_is_an_error_that_names_its_column() -> None:
    with pytest.raises(OptionError, match=r"column 'site' is dictionary<.*> and cannot become string: Index 7 out of"):
        InterleavedBatch(table().append_column("site", coded(0, 1, 7, 0, 0)))
    with pytest.raises(OptionError, match=r"column 'text_content' is dictionary<.*Invalid UTF8"):
        InterleavedBatch(replaced("text_content", pa.array([b"\xff"] * 5).dictionary_encode()))


def test_columns_that_share_a_name_keep_their_values_beside_a_dictionary() -> None:
    rows = table().append_column("n", pa.array([1] * 5)).append_column("n", coded(0, 1, 0, 1, 0))
    batch = InterleavedBatch(rows)
    assert [column[0].as_py() for column in batch.to_pyarrow().columns[-2:]] == [1, "x"]
    assert batch.problems() == ["column 'n' occurs more than once"]


def test_a_plain_dataframe_gets_canonical_types() -> None:
    frame = pd.DataFrame(
        {"sample_id": ["a"], "position": [0], "modality": ["image"], "binary_content": [b"x"], "n": [1]}
    )
    found = InterleavedBatch(frame).to_pyarrow()
    assert [str(dtype) for dtype in found.schema.types] == ["string", "int32", "string", "large_binary", "int64"]
    assert InterleavedBatch(frame).validate()


def test_counts(batch: InterleavedBatch) -> None:
    assert batch.num_items == 2
    assert batch.count() == 5
    assert batch.count(modality="image") == 2
    assert batch.count(modality="audio") == 0
    empty = InterleavedBatch()
    assert (empty.num_items, empty.count(), empty.count(modality="text")) == (0, 0, 0)
    assert empty.get_columns() == INTERLEAVED_SCHEMA.names


def test_source_files_stay_and_the_batch_itself_does_not_change(batch: InterleavedBatch) -> None:
    for other in (
        batch.delete_rows([True] * 5),
        batch.add_rows([{"modality": "text"}], sample_id="a"),
        batch.with_table(table()),
    ):
        assert other.source_files == ("/raw/s.tar",)
        assert batch.count() == 5
    with pytest.raises(dataclasses.FrozenInstanceError):
        batch.source_files = ()


# ---------------------------------------------------------------- validity


def test_a_good_batch_is_valid(batch: InterleavedBatch) -> None:
    assert batch.problems() == []
    assert batch.validate()


def replaced(name: str, values: pa.Array) -> pa.Table:
    return table().set_column(table().column_names.index(name), name, values)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (table().slice(0, 0), "the batch has no rows"),
        (table().drop_columns(["position", "modality"]), "required columns are missing: position, modality"),
        (replaced("sample_id", pa.array(["a", None, None, "b", "b"])), "column 'sample_id' is null in 2 rows"),
        (replaced("position", pa.array([-1, 0, 2, 0, 1])), "column 'position' has type int64, not int32"),
        (
            replaced("binary_content", pa.nulls(5, pa.binary())),
            "column 'binary_content' has type binary, not large_binary",
        ),
        (table(sample_id=["a"] * 5), "column 'sample_id' occurs more than once"),
        (table().append_column("x", pa.nulls(5)).append_column("x", pa.nulls(5)), "column 'x' occurs more than once"),
        (table([("a", 0, "metadata")]), "1 rows break the rule that metadata rows, and only they, have position -1"),
        (table([("a", -1, "text"), ("a", 0, "text")]), "1 rows break the rule that metadata rows"),
        (table([("a", -2, "text")]), "a position is below -1"),
        (table([("a", 0, "text")] * 3), "2 rows repeat the key (sample_id, position, modality)"),
        (pd.DataFrame({"sample_id": ["a"], "position": ["x"], "modality": ["text"]}), "the rows do not form an Arrow "),
    ],
)
def test_invalid_batches_report_each_problem(data, problem: str, caplog: pytest.LogCaptureFixture) -> None:
    batch = InterleavedBatch(data, ("/raw/s.tar",))
    assert any(found.startswith(problem) for found in batch.problems()), batch.problems()
    with caplog.at_level(logging.WARNING):
        assert not batch.validate()
    assert f"batch of /raw/s.tar: {problem}" in "\n".join(caplog.messages)


def test_the_same_position_may_hold_two_modalities() -> None:
    assert InterleavedBatch(table([("a", 0, "text"), ("a", 0, "image")])).validate()


# ---------------------------------------------------------------- adding rows


@pytest.mark.parametrize("form", ["dicts", "table", "frame"])
def test_new_rows_continue_from_the_highest_position(batch: InterleavedBatch, form: str) -> None:
    rows = [
        {"sample_id": "a", "modality": "text", "text_content": "new", "position": 99},
        {"sample_id": "new", "modality": "metadata", "position": 99},
        {"sample_id": "new", "modality": "image", "binary_content": b"1"},
        {"sample_id": "a", "modality": "text", "score": 7},
    ]
    names = ("sample_id", "modality", "text_content", "position", "binary_content", "score")
    as_table = pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
    given_rows = {"dicts": rows, "table": as_table, "frame": as_table.to_pandas(types_mapper=pd.ArrowDtype)}[form]
    added = batch.add_rows(given_rows)
    assert keys(added)[:5] == KEYS
    assert keys(added)[5:] == [("a", 3, "text"), ("new", -1, "metadata"), ("new", 0, "image"), ("a", 4, "text")]
    found = added.to_pyarrow()
    assert found["score"].to_pylist() == [None, 1, 2, 3, None, None, None, None, 7]
    assert found["binary_content"].to_pylist()[-2:] == [b"1", None]
    assert found["tags"].to_pylist()[-4:] == [None] * 4
    assert added.validate()


def test_rows_for_one_sample_and_given_positions(batch: InterleavedBatch) -> None:
    assert keys(batch.add_rows([{"modality": "text"}] * 2, sample_id="b"))[5:] == [("b", 2, "text"), ("b", 3, "text")]
    placed = batch.add_rows([{"modality": "text", "position": 1}], sample_id="a", auto_position=False)
    assert keys(placed)[5:] == [("a", 1, "text")]


def test_new_columns_are_null_in_the_rows_before(batch: InterleavedBatch) -> None:
    added = batch.add_rows([{"modality": "text", "note": {"x": [None]}}], sample_id="a").to_pyarrow()
    assert added["note"].to_pylist() == [None] * 5 + [{"x": [None]}]


def test_adding_no_rows_changes_nothing(batch: InterleavedBatch) -> None:
    assert batch.add_rows([]) is batch
    assert batch.add_rows(table().slice(0, 0)) is batch


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"sample_id": "a"}], {}, "add_rows: column 'modality' is missing or null in the new rows"),
        ([{"modality": "text"}], {}, "column 'sample_id' is missing or null"),
        ([{"modality": "text", "sample_id": None}], {}, "column 'sample_id' is missing or null"),
        ([{"modality": "text"}], {"sample_id": "a", "auto_position": False}, "column 'position' is missing or null"),
        ([{"modality": "metadata"}], {"sample_id": "a"}, "add_rows: 1 rows repeat the key"),
        (
            [{"modality": "text", "position": 0}],
            {"sample_id": "a", "auto_position": False},
            "add_rows: 1 rows repeat the key",
        ),
        ([{"modality": "text", "score": "high"}], {"sample_id": "a"}, "add_rows: the new rows do not fit the types"),
    ],
)
def test_adding_invalid_rows_raises(batch: InterleavedBatch, rows: list, options: dict, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        batch.add_rows(rows, **options)


# ---------------------------------------------------------------- deleting rows


@given(st.lists(st.booleans(), min_size=5, max_size=5), st.sampled_from([list, np.array, pd.Series, pa.array]))
def test_rows_with_a_true_mask_are_deleted(mask: list[bool], form) -> None:
    batch = InterleavedBatch(table())
    assert keys(batch.delete_rows(form(mask))) == [key for key, gone in zip(KEYS, mask, strict=True) if not gone]


def test_deleting_rows_does_not_copy_image_bytes() -> None:
    rows = table([("a", number, "image") for number in range(6)])
    image = pa.array([bytes([number]) * 100_000 for number in range(6)], pa.large_binary())
    batch = InterleavedBatch(rows.set_column(5, "binary_content", image))
    kept = batch.delete_rows([False, True, False, False, True, False]).to_pyarrow()
    assert [value[0] for value in kept["binary_content"].to_pylist()] == [0, 2, 3, 5]
    assert {chunk.buffers()[2].address for chunk in kept["binary_content"].chunks} == {image.buffers()[2].address}


@pytest.mark.parametrize("mask", [[True], [0, 1, 0, 1, 0], [True, None, True, True, True], ["x"] * 5])
def test_a_mask_without_one_bool_per_row_is_refused(mask: list) -> None:
    with pytest.raises(OptionError, match="mask must be one True or False for each of 5 rows"):
        InterleavedBatch(table()).delete_rows(mask)


def test_an_empty_batch_takes_an_empty_mask() -> None:
    assert InterleavedBatch().delete_rows([]).count() == 0


# ---------------------------------------------------------------- locators


def test_source_ref_parts_become_columns(batch: InterleavedBatch) -> None:
    refs = [None, build_source_ref("/a.tar", "b.tiff", 1, 2, 3), build_source_ref("/c.jpg"), None, None]
    rows = batch.to_pyarrow().set_column(6, "source_ref", pa.array(refs))
    for data in (rows, InterleavedBatch(rows).to_pandas()):
        frame = InterleavedBatch(data).with_parsed_source_ref_columns()
        assert list(frame.columns[-6:]) == [f"_src_{name}" for name in SourceRef._fields]
        assert frame["_src_path"].tolist()[1:3] == ["/a.tar", "/c.jpg"]
        assert frame["_src_frame_index"].isna().tolist() == [True, False, True, True, True]
        assert frame["_src_byte_size"].tolist()[1] == 2
        assert len(data if isinstance(data, pd.DataFrame) else data.column_names) >= 5
    named = InterleavedBatch(rows).with_parsed_source_ref_columns(prefix="at.")
    assert "at.member" in named.columns
    without = InterleavedBatch(rows.drop_columns(["source_ref"])).with_parsed_source_ref_columns()
    assert without["_src_path"].isna().all()


def test_a_batch_builds_and_reads_locators() -> None:
    text = InterleavedBatch.build_source_ref("/a.tar", "b", 1, 2)
    assert InterleavedBatch().parse_source_ref(text) == ("/a.tar", "b", 1, 2, None, None)


# ---------------------------------------------------------------- rows that cannot be a batch


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ([{"sample_id": "a"}], "list"),
        (table().to_pydict(), "dict"),
        (table().to_batches()[0], "RecordBatch"),
        (None, "NoneType"),
    ],
)
def test_rows_are_a_table_or_a_dataframe(data, name: str) -> None:
    with pytest.raises(OptionError, match=rf"must be an Arrow table or a pandas DataFrame, got {name}: make a table"):
        InterleavedBatch(data)


def test_source_files_are_paths_and_never_one_string() -> None:
    with pytest.raises(OptionError, match=r"source_files must be a tuple of paths, got '/raw/s.tar': write \(path,\)"):
        InterleavedBatch(table(), "/raw/s.tar")
    assert InterleavedBatch(table(), [Path("/raw/s.tar"), "/raw/t.tar"]).source_files == ("/raw/s.tar", "/raw/t.tar")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, "a", None, 2.5, b"x"], "column 'odd', object: Could not convert 'a' with type str"),
        ([2**70] * 5, "column 'odd', object: Python int too large"),
        (["\ud800"] * 5, r"column 'odd', object: .*surrogates not allowed"),
        (pd.arrays.SparseArray([0, 0, 1, 0, 2]), r"column 'odd', Sparse.*: Sparse pandas data"),
        ([1j] * 5, "column 'odd', complex128: Unsupported numpy type"),
    ],
)
def test_a_column_without_an_arrow_type_is_named(values, message: str) -> None:
    frame = table().to_pandas()
    frame["odd"] = (
        values if isinstance(values, pd.arrays.SparseArray) or values[0] == 1j else pd.Series(values, dtype=object)
    )
    batch = InterleavedBatch(frame)
    with pytest.raises(OptionError, match=f"the rows do not form an Arrow table: {message}"):
        batch.to_pyarrow()
    assert len(batch.problems()) == 1


def test_a_reserved_column_that_does_not_fit_is_named() -> None:
    frame = table().to_pandas().assign(position=[-1, 0.5, 2, 0, 1])
    with pytest.raises(OptionError, match=r"column 'position' is double and cannot become int32: Float value 0\.5"):
        InterleavedBatch(frame).delete_rows([False] * 5)


@pytest.mark.parametrize("names", [("x", "x"), (7, "7")])
def test_columns_that_get_one_name_in_arrow_are_refused(names: tuple) -> None:
    frame = pd.concat([table().to_pandas(), pd.DataFrame([[1, 2]] * 5, columns=list(names))], axis=1)
    batch = InterleavedBatch(frame)
    assert batch.problems() == [f"column '{names[1]}' occurs more than once"]
    with pytest.raises(OptionError, match=f"column '{names[1]}' occurs more than once"):
        batch.to_pyarrow()


@pytest.mark.parametrize("convert", [pa.Table.from_pandas, lambda frame: frame])
def test_counts_name_a_missing_column(convert) -> None:
    batch = InterleavedBatch(convert(pd.DataFrame({"position": [0]})))
    with pytest.raises(OptionError, match="num_items: no column sample_id; columns are position"):
        _ = batch.num_items
    with pytest.raises(OptionError, match="count: no column modality"):
        batch.count(modality="text")
    with pytest.raises(OptionError, match="add_rows: no column sample_id, modality"):
        batch.add_rows([{"sample_id": "a", "modality": "text"}])


def test_a_modality_in_capitals_is_named_with_its_row() -> None:
    batch = InterleavedBatch(table([("a", 0, "text"), ("a", 1, "Image")]))
    assert batch.problems() == ["modality 'Image' must be written 'image': first sample 'a', position 1, Image"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"sample_id": float("nan"), "modality": "text"}, "'sample_id' is missing or null"),
        ({"sample_id": "a", "modality": "text", 7: 1}, "the name of a column must be a string, got 7"),
        ({"sample_id": "a", "modality": "text", "text_content": "\ud800"}, "the values of 'text_content' have no one"),
    ],
)
def test_added_rows_that_do_not_fit_are_refused(row: dict, message: str) -> None:
    with pytest.raises(OptionError, match=f"add_rows: .*{message}"):
        InterleavedBatch(table()).add_rows([row])


def test_nothing_but_rows_is_added_and_nothing_after_the_last_position() -> None:
    for rows in (5, ["a"], {"sample_id": "a"}):
        with pytest.raises(OptionError, match="must be an Arrow table or a pandas DataFrame"):
            InterleavedBatch(table()).add_rows(rows)
    last = InterleavedBatch(table([("a", 2**31 - 1, "text")]))
    with pytest.raises(OptionError, match="there is no position after 2147483647"):
        last.add_rows([{"sample_id": "a", "modality": "text"}])


def test_a_mask_in_another_order_than_the_rows_is_refused() -> None:
    batch = InterleavedBatch(table())
    frame = batch.to_pandas().sort_values("modality")
    is_text = frame["modality"] == "text"
    with pytest.raises(OptionError, match="labels of the rows in another order"):
        batch.delete_rows(is_text)
    assert batch.delete_rows(is_text.sort_index()).count(modality="text") == 0
    assert InterleavedBatch(frame).delete_rows(is_text).count(modality="text") == 0
    with pytest.raises(OptionError, match="labels of the rows in another order"):
        InterleavedBatch(frame).delete_rows(is_text.sort_index())
    assert InterleavedBatch(frame).delete_rows(is_text.to_numpy()).count(modality="text") == 0


def test_a_locator_that_cannot_be_parsed_is_named_with_its_row() -> None:
    rows = table().set_column(6, "source_ref", pa.array([None, "", '{"path": "/a"}', "/b.png", None]))
    with pytest.raises(ValueError, match=r"row 3 \(sample_id b, position 0, modality image\): Expecting value"):
        InterleavedBatch(rows).with_parsed_source_ref_columns()
    frame = table().to_pandas().assign(source_ref=[{"path": "/a"}] * 5)
    with pytest.raises(ValueError, match=r"row 0 .*: source_ref must be JSON text, got {'path': '/a'}"):
        InterleavedBatch(frame).with_parsed_source_ref_columns()
