"""Every Arrow type that Parquet changes or lacks is read as it was written."""

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interleaved_assets.io.parquet.reader import read_parquet_shard
from interleaved_assets.io.parquet.types import original_schema, stored_schema
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.model.errors import OptionError
from interleaved_assets_tests.io.rows import rows_table

EMPTY = pa.struct([])


def round_trip(values: pa.Array, path: Path) -> pa.Table:
    table = rows_table([{"sample_id": "a"}] * len(values), extra=values)
    with parquet_shard(str(path), table.schema, hashed=False) as shard:
        shard.write(table)
    (found,) = read_parquet_shard(str(path))
    # NaN is not equal to itself
    assert repr(found.to_pylist()) == repr(table.to_pylist())
    assert found.schema == table.schema
    assert found["extra"].type == values.type
    return found


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, None], pa.timestamp("s")),
        pa.array([1, None], pa.timestamp("s", "Europe/Berlin")),
        pa.array([2**60, None], pa.timestamp("ns", "UTC")),
        pa.array([86_400_000, None], pa.date64()),
        pa.array([3, None], pa.time32("s")),
        pa.array([3, None], pa.duration("s")),
        pa.array([Decimal("1.50"), None], pa.decimal256(50, 2)),
        pa.array([None, None], pa.null()),
        pa.array([float("nan"), None, -0.0], pa.float64()),
        pa.array([1.5, None], pa.float16()),
        pa.array([2**64 - 1, None], pa.uint64()),
        pa.array([b"\0\xff", None, b""], pa.binary()),
        pa.array([b"1234", None], pa.binary(4)),
        pa.array([b"x", None], pa.large_binary()),
        pa.array(["x", None, ""], pa.large_string()),
        pa.array([{}, None], EMPTY),
        pa.array([[{}], None, [], [None]], pa.list_(EMPTY)),
        pa.array([{"a": {}, "b": [{}]}, None], pa.struct([("a", EMPTY), ("b", pa.large_list(EMPTY))])),
        pa.array([[("k", {})], None], pa.map_(pa.string(), EMPTY)),
        pa.array([[{}, {}], None], pa.list_(EMPTY, 2)),
        pa.array([{"t": 5, "n": None}, None], pa.struct([("t", pa.timestamp("s")), ("n", pa.null())])),
        pa.array([[[1, None], None, []], None], pa.list_(pa.list_(pa.int8()))),
        pa.array([[("a", 1.5)], [], None], pa.map_(pa.string(), pa.float32())),
    ],
    ids=lambda values: str(values.type),
)
def test_a_column_comes_back_as_it_was(values: pa.Array, tmp_path: Path) -> None:
    round_trip(values, tmp_path / "a.parquet")


# columns as a reader of JSON documents may infer them
scalars = st.none() | st.booleans() | st.text(max_size=3)
columns = st.sampled_from(["int", "text", "float"]).flatmap(
    lambda kind: st.lists(
        st.none() | {"int": st.integers(-9, 9), "text": st.text(max_size=3), "float": st.floats()}[kind], max_size=4
    )
)
nested = st.recursive(
    columns,
    lambda inner: st.lists(st.none() | inner, max_size=3) | inner.map(lambda value: {"x": value, "e": {}}),
    max_leaves=6,
)


@settings(max_examples=60)
@given(nested, st.integers(1, 3))
def test_nested_columns_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, value, rows: int) -> None:
    try:
        values = pa.array([value] * rows + [None])
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return  # Arrow has no one type for it
    table = rows_table([{"sample_id": "a"}] * len(values), extra=values)
    path = str(tmp_path_factory.mktemp("nested") / "a.parquet")
    with parquet_shard(path, table.schema, hashed=False) as shard:
        shard.write(table)
    (found,) = read_parquet_shard(path)
    assert found.schema == table.schema
    # NaN is not equal to itself; its bytes are the same
    assert repr(found["extra"].to_pylist()) == repr(table["extra"].to_pylist())


def test_a_dictionary_is_an_encoding_and_no_type(tmp_path: Path) -> None:
    for values in (pa.array(["x", "y", "x"]), pa.array([7, 8, 7])):
        table = rows_table([{"sample_id": "a"}] * 3, extra=values.dictionary_encode())
        pq.write_table(table, tmp_path / "a.parquet")
        (found,) = read_parquet_shard(str(tmp_path / "a.parquet"))
        assert found["extra"].type == values.type
        assert found["extra"].to_pylist() == values.to_pylist()


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (pa.array([[1], None, [2, 3]], pa.list_view(pa.int32())), pa.list_(pa.int32())),
        (pa.array([["a"], None, []], pa.large_list_view(pa.string())), pa.large_list(pa.string())),
        (
            pa.array([{"x": [["a"]]}, None, {"x": None}], pa.struct([("x", pa.list_view(pa.list_view(pa.string())))])),
            pa.struct([("x", pa.list_(pa.list_(pa.string())))]),
        ),
        (pa.array([["a"], None, []], pa.list_(pa.string_view())), pa.list_(pa.string())),
        (pa.DictionaryArray.from_arrays([0, None, 0], pa.array(["a"], pa.string_view())), pa.string()),
    ],
    ids=lambda it: str(it) if isinstance(it, pa.DataType) else "",
)
def test_views_are_a_layout_and_no_type(values: pa.Array, dtype: pa.DataType, tmp_path: Path) -> None:
    table = rows_table([{"sample_id": "a"}] * 3, extra=values)
    with parquet_shard(str(tmp_path / "a.parquet"), table.schema, hashed=False) as shard:
        shard.write(table)
    (found,) = read_parquet_shard(str(tmp_path / "a.parquet"))
    found.validate(full=True)
    assert (found["extra"].type, found["extra"].to_pylist()) == (dtype, values.to_pylist())


@pytest.mark.parametrize(
    "dtype",
    [
        pa.month_day_nano_interval(),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.binary(0),
        pa.list_(pa.struct([("x", pa.list_(pa.int8(), 0))])),
    ],
    ids=str,
)
def test_a_type_that_parquet_lacks_is_refused_and_leaves_nothing(dtype: pa.DataType, tmp_path: Path) -> None:
    schema = rows_table([]).schema.append(pa.field("extra", dtype))
    with (
        pytest.raises(OptionError, match=r"cannot write .*a\.parquet as Parquet: "),
        parquet_shard(str(tmp_path / "a.parquet"), schema),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_arrow_s_own_schema_keeps_the_types_that_parquet_has() -> None:
    stored = pa.schema([("a", pa.timestamp("ms"))])
    for metadata in (None, {}, {b"ARROW:schema": b"no base64!"}, {b"ARROW:schema": b"AAAA"}):
        assert original_schema(stored, metadata) == stored


def test_other_columns_are_stored_as_they_are() -> None:
    schema = pa.schema([("a", pa.list_(pa.struct([("b", pa.int8())]))), ("c", pa.map_(pa.string(), pa.int8()))])
    assert stored_schema(schema) == schema
