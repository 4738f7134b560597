"""Every Arrow type that Parquet changes or lacks is read as it was written."""

import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.io.formats.shard import read_shard
from interleaved_assets.io.parquet.reader import InterleavedParquetReader, read_parquet_shard
from interleaved_assets.io.parquet.types import original_schema, stored_schema
from interleaved_assets.io.parquet.writer import InterleavedParquetWriter, parquet_shard
from interleaved_assets.io.tar.writer import InterleavedWebdatasetWriter
from interleaved_assets.model.errors import OptionError, ShardError
from interleaved_assets_tests.io.row_tables import rows_table, sample

EMPTY = pa.struct([])


def round_trip(values: pa.Array, path: Path) -> pa.Table:
    table = rows_table([{"sample_id": "a"}] * len(values), extra=values)
    with parquet_shard(str(path), table.schema) as shard:
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


@given(nested, st.integers(1, 3))
def test_nested_columns_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, value, rows: int) -> None:
    try:
        values = pa.array([value] * rows + [None])
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return  # Arrow has no one type for it
    table = rows_table([{"sample_id": "a"}] * len(values), extra=values)
    path = str(tmp_path_factory.mktemp("nested") / "a.parquet")
    with parquet_shard(path, table.schema) as shard:
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
        (pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", None])), pa.string()),
    ],
    ids=lambda it: str(it) if isinstance(it, pa.DataType) else "",
)
def test_views_are_a_layout_and_no_type(values: pa.Array, dtype: pa.DataType, tmp_path: Path) -> None:
    table = rows_table([{"sample_id": "a"}] * 3, extra=values)
    with parquet_shard(str(tmp_path / "a.parquet"), table.schema) as shard:
        shard.write(table)
    (found,) = read_parquet_shard(str(tmp_path / "a.parquet"))
    found.validate(full=True)
    assert (found["extra"].type, found["extra"].to_pylist()) == (dtype, values.to_pylist())


@pytest.mark.parametrize(
    "dtype",
    [
        pa.month_day_nano_interval(),
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


def extension_values() -> dict[str, pa.ExtensionArray]:
    return {
        "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"a" * 16, b"b" * 16, None], pa.binary(16))),
        "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a":1}', "[2]", None])),
        "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1, None], pa.int8())),
        "opaque": pa.ExtensionArray.from_storage(pa.opaque(pa.int32(), "a", "b"), pa.array([1, 2, None], pa.int32())),
    }


def nested(values: pa.Array) -> dict[str, pa.Array]:
    ends = pa.array([0, 1, 2, 3], pa.int32())
    struct = pa.StructArray.from_arrays([values, pa.array([1, 2, 3])], ["x", "y"])
    return {
        "struct": struct,
        "list": pa.ListArray.from_arrays(ends, values),
        "fixed": pa.FixedSizeListArray.from_arrays(values, 1),
        "map": pa.MapArray.from_arrays(ends, pa.array(["a", "b", "c"]), values),
        "structs in lists": pa.ListArray.from_arrays(ends, struct),
    }


@pytest.mark.parametrize("form", ["struct", "list", "fixed", "map", "structs in lists"])
@pytest.mark.parametrize("kind", ["uuid", "json", "bool8", "opaque"])
def test_extension_types_in_structs_and_lists(tmp_path: Path, kind: str, form: str) -> None:
    values = nested(extension_values()[kind])[form]
    rows = sample("s0", b"image")
    table = rows_table(rows, value=values)
    pq.write_table(table, tmp_path / "a.parquet")
    pq.write_table(rows_table(sample("s1", b"image")), tmp_path / "b.parquet")
    pq.write_table(table.slice(0, 0), tmp_path / "empty.parquet")
    (read,) = InterleavedParquetReader(str(tmp_path / "a.parquet"))
    assert same_values(read.to_pyarrow()["value"], values)
    for part in InterleavedParquetReader(str(tmp_path / "a.parquet"), max_batch_bytes=1):
        assert part.count() == 3
    (empty,) = InterleavedParquetReader(str(tmp_path / "empty.parquet"))
    assert empty.to_pyarrow()["value"].type == read.to_pyarrow()["value"].type
    # of two files, one without the column
    both = pa.concat_tables(
        batch.to_pyarrow() for batch in InterleavedParquetReader(str(tmp_path / "*.parquet"), files_per_partition=3)
    )
    assert same_values(both["value"].slice(0, 3), values)
    assert both["value"].slice(3).null_count == 3
    assert read.delete_rows([False, False, True]).to_pyarrow()["value"].to_pylist() == both["value"].to_pylist()[:2]
    for writer in (InterleavedParquetWriter, InterleavedWebdatasetWriter):
        (written,) = writer(str(tmp_path / writer.__name__)).write(read)
        back = pa.concat_tables(read_shard(written))
        assert back["value"].type == read.to_pyarrow()["value"].type
        assert same_values(back["value"], values)


def same_values(column: pa.ChunkedArray, values: pa.Array) -> bool:
    return column.to_pylist() == values.to_pylist()


FAR = 2**62


@pytest.mark.parametrize("name", ["sample_id", "modality", "text_content"])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array([FAR] * 3, pa.timestamp("us")), f"value out of range: {FAR}, so the time has no text"),
        (pa.array([2**30] * 3, pa.date32()), f"value out of range: {2**30}, so the time has no text"),
        (pa.array([0] * 3, pa.timestamp("us", "Nowhere/Land")), "Cannot locate or parse timezone 'Nowhere/Land'"),
    ],
)
def test_times_without_a_text_are_refused_where_text_belongs(
    tmp_path: Path, name: str, values: pa.Array, message: str
) -> None:
    table = shard_rows()
    table = table.set_column(table.column_names.index(name), name, values)
    pq.write_table(table, tmp_path / "a.parquet")
    expected = f"column '{name}' is {values.type} and cannot become string: {message}"
    with pytest.raises(ShardError, match=rf"^{re.escape(str(tmp_path))}/a\.parquet: {re.escape(expected)}"):
        list(InterleavedParquetReader(str(tmp_path / "a.parquet")))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([316516233600 * 10**6] * 3, pa.timestamp("us")), "12000-01-01 08:00:00.000000"),
        (pa.array([0] * 3, pa.timestamp("s", "Europe/Berlin")), "1970-01-01 01:00:00.000+0100"),
        (pa.array([7] * 3, pa.duration("us")), "7"),
        (pa.array([Decimal("1.50")] * 3), "1.50"),
        (pa.array([1] * 3, pa.time64("us")), "00:00:00.000001"),
    ],
)
def test_sample_ids_of_other_types_become_text(tmp_path: Path, values: pa.Array, expected: str) -> None:
    pq.write_table(shard_rows().set_column(0, "sample_id", values), tmp_path / "a.parquet")
    (batch,) = InterleavedParquetReader(str(tmp_path / "a.parquet"))
    assert batch.to_pyarrow()["sample_id"].to_pylist() == [expected] * 3


def shard_rows() -> pa.Table:
    return rows_table([{"sample_id": "s", "position": row, "modality": "text"} for row in range(3)])


@pytest.mark.parametrize("dtype", [pa.decimal128(5, -2), pa.list_(pa.decimal256(50, -1))])
def test_a_decimal_with_a_scale_below_0_is_refused_by_name(tmp_path: Path, dtype: pa.DataType) -> None:
    table = rows_table([{"sample_id": "a"}], extra=pa.nulls(1, dtype))
    with (
        pytest.raises(OptionError, match=r"column 'extra', .*decimal.*has a scale below 0: cast it"),
        parquet_shard(tmp_path / "a.parquet", table.schema),
    ):
        pass
    assert not list(tmp_path.iterdir())


def test_texts_that_are_stored_with_the_prefix_of_the_one_before(tmp_path: Path) -> None:
    table = rows_table(
        [{"sample_id": f"s{number // 2}", "text_content": f"the same start {number}"} for number in range(900)]
    )
    columns = dict.fromkeys(("sample_id", "text_content"), "DELTA_BYTE_ARRAY")
    pq.write_table(table, tmp_path / "a.parquet", use_dictionary=False, column_encoding=columns)
    found = pa.concat_tables(read_parquet_shard(str(tmp_path / "a.parquet"), max_batch_bytes=10_000))
    assert found["text_content"].to_pylist() == table["text_content"].to_pylist()


def test_a_row_that_names_one_text_very_often_is_refused_before_it_is_copied(tmp_path: Path) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 3000, pa.int32()), pa.array(["x" * 1_000_000]))
    table = rows_table([{"sample_id": "a"}], extra=pa.ListArray.from_arrays(pa.array([0, 3000], pa.int32()), texts))
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd")
    assert (tmp_path / "a.parquet").stat().st_size < 10_000
    with pytest.raises(ShardError, match=r"a row takes 3000000[0-9]* bytes, and a row may take at most 2147483647"):
        list(read_shard(str(tmp_path / "a.parquet")))
