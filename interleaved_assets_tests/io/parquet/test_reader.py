"""Reading Parquet: whole samples in bounded steps, selected columns, files of other writers."""

import base64
import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from s3fs.core import S3File

from interleaved_assets.io.parquet import source
from interleaved_assets.io.parquet.reader import InterleavedParquetReader, parquet_shard_schema, read_parquet_shard
from interleaved_assets.io.rows.batches import row_bytes, split_samples
from interleaved_assets.model.errors import OptionError, ShardError, StorageError
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets_tests.defects import stand_in
from interleaved_assets_tests.io.row_tables import image_bytes, rows_table, sample
from interleaved_assets_tests.s3 import S3Server


def shard_table(prefix: str = "s", samples: int = 6, **passthrough: pa.DataType) -> pa.Table:
    rows = []
    for number in range(samples):
        rows += sample(f"{prefix}{number}", *[image_bytes(number, 500 * number)] * (1 + number % 3))
    return rows_table(rows, score=pa.array(np.arange(len(rows)) / 7))


def ids(table: pa.Table) -> list[str]:
    return pc.unique(table["sample_id"]).to_pylist()


# ---------------------------------------------------------------- one shard


@given(st.integers(1, 40), st.sampled_from([None, 1, 2000, 9000]), st.booleans())
def test_samples_are_whole_whatever_the_row_groups(tmp_path_factory, group_rows: int, limit, plain: bool) -> None:
    table = shard_table()
    path = str(tmp_path_factory.mktemp("groups") / "a.parquet")
    # as others write: row groups end anywhere
    options = {} if plain else {"use_dictionary": False, "compression": "none", "data_page_size": 700}
    pq.write_table(table, path, row_group_size=group_rows, **options)
    parts = list(read_parquet_shard(path, max_batch_bytes=limit))
    assert pa.concat_tables(parts) == table
    assert [ids(part) for part in parts] == [ids(part) for part in split_samples(table, limit)]


@pytest.mark.parametrize("limit", [None, 1, 2000, 9000])
@pytest.mark.parametrize("has_arrow_types", [True, False])
@pytest.mark.parametrize("order", ["first rows", "as they come", "shared", "reversed", "none"])
def test_images_in_a_dictionary_are_read_as_they_are(
    tmp_path: Path, limit: int | None, has_arrow_types: bool, order: str
) -> None:
    numbers = {"shared": [0, 1, 1, 2, 0], "reversed": [4, 3, 2, 1, 0], "none": [None] * 5}.get(order, [*range(5)])
    images = [None if number is None else image_bytes(number, 500 * number) for number in numbers]
    cells = [cell for image in images for cell in (None, image, image if order == "shared" else None)]
    if order == "first rows":
        cells = [*images, *[None] * 10]
    rows = [{"sample_id": f"s{row // 4}", "position": row, "modality": "image"} for row in range(len(cells))]
    table = rows_table([{**row, "binary_content": cell} for row, cell in zip(rows, cells, strict=True)])
    pq.write_table(table, tmp_path / "a.parquet", use_dictionary=["binary_content"], store_schema=has_arrow_types)
    found = pa.concat_tables(read_parquet_shard(str(tmp_path / "a.parquet"), max_batch_bytes=limit))
    found.validate(full=True)
    assert found["binary_content"].to_pylist() == cells


def test_only_the_columns_asked_for_are_read(tmp_path: Path) -> None:
    pq.write_table(shard_table(), tmp_path / "a.parquet")
    (found,) = read_parquet_shard(str(tmp_path / "a.parquet"), columns=["position", "score", "none"])
    # sample_id is what samples are told apart by
    assert found.column_names == ["sample_id", "position", "score"]


@pytest.mark.parametrize("use_dictionary", [True, False])
def test_json_columns_stay_json(tmp_path: Path, use_dictionary: bool) -> None:
    rows = sample("s0", b"image")
    table = rows_table(rows, mixed=pa.array(['{"a":1}', None, "[2]"], pa.json_(pa.string())))
    pq.write_table(table, tmp_path / "a.parquet", use_dictionary=use_dictionary)
    (found,) = read_parquet_shard(str(tmp_path / "a.parquet"))
    assert found["mixed"].type == pa.json_(pa.string())
    assert found["mixed"].to_pylist() == table["mixed"].to_pylist()


def test_a_shard_without_rows_has_no_tables_but_a_schema(tmp_path: Path) -> None:
    table = shard_table()
    pq.write_table(table.slice(0, 0), tmp_path / "a.parquet")
    assert list(read_parquet_shard(str(tmp_path / "a.parquet"))) == []
    assert parquet_shard_schema(str(tmp_path / "a.parquet")) == table.schema


def test_rows_of_a_sample_that_lie_apart_are_brought_together(tmp_path: Path, caplog) -> None:
    table = shard_table()
    order = np.random.default_rng(1).permutation(table.num_rows)
    shuffled = table.take(pa.array(order))
    pq.write_table(shuffled, tmp_path / "a.parquet", row_group_size=5)
    with caplog.at_level(logging.WARNING):
        parts = list(read_parquet_shard(str(tmp_path / "a.parquet"), max_batch_bytes=3000))
    assert len(caplog.messages) == 1
    assert "rows of a sample are not adjacent" in caplog.messages[0]
    assert [name for part in parts for name in ids(part)] == ids(shuffled)
    for name in ids(table):
        rows = pa.concat_tables([part.filter(pc.equal(part["sample_id"], name)) for part in parts])
        assert rows == shuffled.filter(pc.equal(shuffled["sample_id"], name))
        assert sum(name in ids(part) for part in parts) == 1


@pytest.mark.parametrize("with_arrow_schema", [True, False])
def test_types_of_others_become_canonical(tmp_path: Path, with_arrow_schema: bool) -> None:
    table = shard_table()
    theirs = {"binary_content": pa.binary(), "position": pa.int64(), "modality": pa.dictionary(pa.int8(), pa.string())}
    fields = [
        pa.field(field.name, theirs.get(field.name, field.type))  # nullable, as most writers leave it
        for field in table.schema
    ]
    other = table.cast(pa.schema(fields, metadata={"pandas": "{}", "own": "kept"}))
    pq.write_table(other, tmp_path / "a.parquet", store_schema=with_arrow_schema)
    (found,) = read_parquet_shard(str(tmp_path / "a.parquet"))
    assert found.schema == table.schema
    assert found.to_pylist() == table.to_pylist()
    if with_arrow_schema:
        # what pandas notes about its index is of no use here
        assert found.schema.metadata == {b"own": b"kept"}


# ---------------------------------------------------------------- what is no shard


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"a\.parquet is not a sound Parquet file: "),
        (b"words and more words", r"a\.parquet is not a sound Parquet file: "),
        (b"PAR1" + b"\xff" * 40 + b"\x20\0\0\0PAR1", r"a\.parquet is not a sound Parquet file: "),
        (
            b"PARE" + b"\xff" * 40 + b"\x20\0\0\0PARE",
            r"a\.parquet is not a sound .*: its footer is encrypted, and there",
        ),
    ],
)
def test_a_file_that_is_not_parquet_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(ShardError, match=message):
        list(read_parquet_shard(str(tmp_path / "a.parquet")))


UUIDS = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(range(200, 216))] * 3, pa.binary(16)))


@pytest.mark.parametrize(
    ("name", "column", "types"),
    [
        ("sample_id", UUIDS, "extension<arrow.uuid> and cannot become string: Invalid UTF8"),
        ("position", pa.array([0.5, 1, 2]), "double and cannot become int32: Float value 0.5"),
        (
            "binary_content",
            pa.array([{"bytes": b"x", "path": "x.png"}] * 3),
            "struct<.*> and cannot become large_binary",
        ),
    ],
)
def test_a_reserved_column_of_a_type_that_does_not_fit_is_named(
    tmp_path: Path, name: str, column: pa.Array, types: str
) -> None:
    table = shard_table("s", 1)
    pq.write_table(table.set_column(table.column_names.index(name), name, column), tmp_path / "a.parquet")
    with pytest.raises(ShardError, match=rf"a\.parquet: column '{name}' is {types}"):
        list(read_parquet_shard(str(tmp_path / "a.parquet")))


def test_a_column_of_integers_of_128_bits_is_called_unread_and_not_only_damaged(tmp_path: Path) -> None:
    # a schema as polars stores it: an integer of 128 bits, which the format can say and Arrow cannot hold
    schema = bytearray(pa.schema([("n", pa.int64())]).serialize())
    schema[schema.index((64).to_bytes(4, "little"))] = 128
    table = shard_table("s", 1).append_column("n", pa.array([1, 2, 3]))
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"ARROW:schema": base64.b64encode(schema).decode()})
    with pytest.raises(
        ShardError, match=r"a\.parquet has something that Arrow does not read, or is damaged: .* 64 bits"
    ):
        list(read_parquet_shard(str(tmp_path / "a.parquet")))


def test_a_truncated_and_a_damaged_file_are_named(tmp_path: Path) -> None:
    pq.write_table(shard_table(), tmp_path / "a.parquet")
    content = (tmp_path / "a.parquet").read_bytes()
    for broken in (content[:-100], content[: len(content) // 2], content[:4] + b"\xff" * 900 + content[904:]):
        (tmp_path / "b.parquet").write_bytes(broken)
        with pytest.raises(ShardError, match=r"b\.parquet is not a sound Parquet file"):
            list(read_parquet_shard(str(tmp_path / "b.parquet")))


def test_a_file_without_the_required_columns_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"sample_id": ["a"], "text": ["b"]}), tmp_path / "a.parquet")
    for read in (
        lambda: list(read_parquet_shard(str(tmp_path / "a.parquet"))),
        lambda: list(InterleavedParquetReader(tmp_path)),
    ):
        with pytest.raises(
            ShardError, match=r"a\.parquet is not interleaved Parquet: it lacks the columns position, mod"
        ):
            read()


def test_nulls_in_required_columns_are_named(tmp_path: Path) -> None:
    table = shard_table()
    for name in ("sample_id", "position"):
        index = table.column_names.index(name)
        field = table.schema.field(index).with_nullable(True)
        broken = table.set_column(index, field, pa.nulls(table.num_rows, field.type))
        pq.write_table(broken, tmp_path / "a.parquet")
        with pytest.raises(ShardError, match=rf"a\.parquet: .*{name}.* null"):
            list(read_parquet_shard(str(tmp_path / "a.parquet")))


def test_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    table = shard_table()
    pq.write_table(table.rename_columns([*table.column_names[:-1], "source_ref"]), tmp_path / "a.parquet")
    with pytest.raises(ShardError, match="has two columns with the same name"):
        list(read_parquet_shard(str(tmp_path / "a.parquet")))


def test_a_missing_file_is_a_storage_error(tmp_path: Path, s3_server: S3Server, bucket: str) -> None:
    with pytest.raises(StorageError, match="cannot read"):
        list(read_parquet_shard(str(tmp_path / "a.parquet")))
    with pytest.raises(StorageError, match="cannot read"):
        list(read_parquet_shard(f"{bucket}/a.parquet", storage_options=s3_server.storage_options))


# ---------------------------------------------------------------- the reader


def test_a_folder_is_read_file_by_file(tmp_path: Path) -> None:
    tables = [shard_table(prefix) for prefix in "ab"]
    for table, name in zip(tables, ("2.parquet", "10.parquet"), strict=True):
        pq.write_table(table, tmp_path / name)
    batches = list(InterleavedParquetReader(tmp_path))
    assert [batch.source_files for batch in batches] == [(f"{tmp_path}/10.parquet",), (f"{tmp_path}/2.parquet",)]
    assert [batch.to_pyarrow() for batch in batches] == tables[::-1]
    assert all(batch.validate() for batch in batches)


def test_a_batch_knows_its_files_also_after_a_split(tmp_path: Path) -> None:
    for prefix in "ab":
        pq.write_table(shard_table(prefix), tmp_path / f"{prefix}.parquet")
    batches = list(InterleavedParquetReader(tmp_path, files_per_partition=2, max_batch_bytes="4KiB"))
    assert len(batches) > 2
    for batch in batches:
        prefixes = {name[0] for name in ids(batch.to_pyarrow())}
        assert batch.source_files == tuple(f"{tmp_path}/{prefix}.parquet" for prefix in sorted(prefixes))
    names = [name for batch in batches for name in ids(batch.to_pyarrow())]
    assert names == [f"{prefix}{number}" for prefix in "ab" for number in range(6)]
    assert all(row_bytes(batch.to_pyarrow()).sum() <= 4096 or batch.num_items == 1 for batch in batches)
    (whole,) = InterleavedParquetReader(tmp_path, blocksize="1MiB")
    assert whole.source_files == (f"{tmp_path}/a.parquet", f"{tmp_path}/b.parquet")


def test_equal_ids_in_two_files_stay_two_samples(tmp_path: Path) -> None:
    for name in "ab":
        pq.write_table(shard_table("s", 2), tmp_path / f"{name}.parquet")
    batches = list(InterleavedParquetReader(tmp_path, files_per_partition=2))
    assert [batch.num_items for batch in batches] == [2, 2]
    assert all(batch.validate() for batch in batches)


def test_files_of_a_partition_are_unified(tmp_path: Path) -> None:
    first = shard_table("a", 1).append_column("x", pa.array([1, 2, 3], pa.int32()))
    second = shard_table("b", 1).drop_columns(["score", "materialize_error"])
    second = second.append_column("x", pa.array([0.5, None, 2.0]))
    pq.write_table(first, tmp_path / "a.parquet")
    pq.write_table(second, tmp_path / "b.parquet")
    (batch,) = InterleavedParquetReader(tmp_path, files_per_partition=2)
    table = batch.to_pyarrow()
    assert table["x"].type == pa.float64()
    assert table["x"].to_pylist() == [1, 2, 3, 0.5, None, 2.0]
    assert table["score"].null_count == 3
    # apart they keep their own types, and each has all reserved columns
    alone = [batch.to_pyarrow() for batch in InterleavedParquetReader(tmp_path)]
    assert [table["x"].type for table in alone] == [pa.int32(), pa.float64()]
    assert all(set(INTERLEAVED_SCHEMA.names) <= set(table.column_names) for table in alone)


def test_types_that_no_one_type_holds_need_a_decision(tmp_path: Path) -> None:
    pq.write_table(shard_table("a", 1).append_column("x", pa.array([1, 2, 3])), tmp_path / "a.parquet")
    pq.write_table(shard_table("b", 1).append_column("x", pa.array(["1", "2", "3"])), tmp_path / "b.parquet")
    with pytest.raises(ShardError, match=r"b\.parquet does not fit the files before it .* schema_overrides"):
        list(InterleavedParquetReader(tmp_path, files_per_partition=2))
    (batch,) = InterleavedParquetReader(tmp_path, files_per_partition=2, schema_overrides={"x": pa.int64()})
    assert batch.to_pyarrow()["x"].to_pylist() == [1, 2, 3, 1, 2, 3]


def test_fields(tmp_path: Path) -> None:
    table = shard_table().append_column("other", pa.array(range(shard_table().num_rows)))
    pq.write_table(table, tmp_path / "a.parquet")
    (batch,) = InterleavedParquetReader(tmp_path, fields=["other", "none"])
    found = batch.to_pyarrow()
    assert found.column_names == [*INTERLEAVED_SCHEMA.names, "other", "none"]
    assert found["none"].type == pa.null()
    assert found["other"].to_pylist() == table["other"].to_pylist()
    (batch,) = InterleavedParquetReader(tmp_path, fields=[])
    assert batch.get_columns() == INTERLEAVED_SCHEMA.names
    overrides = {"other": pa.int16(), "none": pa.string()}
    (batch,) = InterleavedParquetReader(tmp_path, fields=["none", "other"], schema_overrides=overrides)
    assert batch.to_pyarrow().schema.field("other").type == pa.int16()
    assert batch.to_pyarrow().schema.field("none").type == pa.string()


def test_schema_says_which_columns_there_are(tmp_path: Path) -> None:
    pq.write_table(shard_table(), tmp_path / "a.parquet")
    schema = pa.schema([*list(INTERLEAVED_SCHEMA)[:5], pa.field("score", pa.float32()), pa.field("new", pa.int8())])
    with pytest.warns(UserWarning, match="schema_overrides is ignored"):
        reader = InterleavedParquetReader(tmp_path, schema=schema, schema_overrides={"x": pa.int8()})
    (batch,) = reader
    assert batch.to_pyarrow().schema == schema
    with pytest.raises(
        ShardError, match=r"large\.parquet: column 'n' is int64 and .* int8: Integer value 300 not in range"
    ):
        list(InterleavedParquetReader(_with_large_value(tmp_path), schema_overrides={"n": pa.int8()}))


def _with_large_value(folder: Path) -> Path:
    pq.write_table(shard_table("s", 1).append_column("n", pa.array([1, 300, 2])), folder / "large.parquet")
    return folder / "large.parquet"


def test_columns_and_filters(tmp_path: Path) -> None:
    table = shard_table()
    pq.write_table(table, tmp_path / "a.parquet")
    (batch,) = InterleavedParquetReader(tmp_path, read_kwargs={"columns": ["text_content"]})
    assert batch.get_columns() == ["sample_id", "position", "modality", "text_content"]
    for filters in (
        [("modality", "=", "image"), ("score", ">", 1.5)],
        (pc.field("modality") == "image") & (pc.field("score") > 1.5),
    ):
        (batch,) = InterleavedParquetReader(tmp_path, read_kwargs={"filters": filters})
        assert batch.to_pyarrow() == table.filter((pc.field("modality") == "image") & (pc.field("score") > 1.5))
    for filters in ([("modality", "~", "image")], pc.field("none") == 1):
        with pytest.raises(OptionError, match="read_kwargs filters"):
            list(InterleavedParquetReader(tmp_path, read_kwargs={"filters": filters}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"read_kwargs": {"column": []}},
            "unknown options column; known are columns, filters, storage_options",
        ),
        ({"fields": "score"}, "fields and file_extensions are lists of names"),
        ({"max_batch_bytes": 0}, "max_batch_bytes must be at least one byte"),
        ({"max_batch_bytes": "1 XB"}, "max_batch_bytes must be bytes as a whole number"),
        ({"files_per_partition": 2, "blocksize": 2}, "exclude each other"),
        ({"read_kwargs": {"columns": "text"}}, "read_kwargs columns is a list of names"),
    ],
)
def test_invalid_options_are_refused(tmp_path: Path, options: dict, message: str) -> None:
    pq.write_table(shard_table(), tmp_path / "a.parquet")
    with pytest.raises(OptionError, match=message):
        list(InterleavedParquetReader(tmp_path, **options))


def test_fields_may_name_reserved_columns_and_warn_of_names_that_no_file_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pq.write_table(shard_table().drop_columns("materialize_error"), tmp_path / "a.parquet")
    options = {"fields": ["modality", "materialize_error", "scroe"], "files_per_partition": 2}
    (batch,) = InterleavedParquetReader(tmp_path, **options)
    assert batch.to_pyarrow().column_names == [*INTERLEAVED_SCHEMA.names[:-1], "materialize_error", "scroe"]
    assert f"{tmp_path}/a.parquet: no document or column is named scroe;" in caplog.text
    assert caplog.text.rstrip().endswith("Known names: score")
    caplog.clear()
    pq.write_table(shard_table("t").append_column("scroe", pa.nulls(batch.count())), tmp_path / "b.parquet")
    assert [batch.num_items for batch in InterleavedParquetReader(tmp_path, **options)] == [12]
    assert caplog.text == ""


def test_files_without_rows_give_one_batch_without_rows(tmp_path: Path) -> None:
    pq.write_table(shard_table().slice(0, 0), tmp_path / "a.parquet")
    (batch,) = InterleavedParquetReader(tmp_path)
    assert batch.to_pyarrow().schema.names == shard_table().schema.names
    assert (batch.count(), batch.source_files) == (0, (f"{tmp_path}/a.parquet",))
    pq.write_table(shard_table(), tmp_path / "b.parquet")
    assert [batch.count() > 0 for batch in InterleavedParquetReader(tmp_path, files_per_partition=2)] == [True]


def test_a_reader_can_be_left_early_and_used_again(tmp_path: Path) -> None:
    pq.write_table(shard_table(), tmp_path / "a.parquet")
    reader = InterleavedParquetReader(tmp_path, max_batch_bytes=1)
    for batch in reader:
        assert ids(batch.to_pyarrow()) == ["s0"]
        break
    assert len(list(reader)) == 6


# ---------------------------------------------------------------- remote files


@pytest.mark.parametrize("group_rows", [4, 1000])
def test_s3_gives_the_same(s3_server: S3Server, bucket: str, tmp_path: Path, group_rows: int, monkeypatch) -> None:
    table = shard_table()
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=group_rows)
    s3_server.fs.put(str(tmp_path / "a.parquet"), f"{bucket}/in/a.parquet")
    options = {"storage_options": s3_server.storage_options}
    if group_rows == 1000:
        # as for a row group too large to be fetched whole
        stand_in(monkeypatch, source, "_WHOLE_GROUP_BYTES", 10)
        stand_in(monkeypatch, source, "_WINDOW_BYTES", 1000)
    batches = list(InterleavedParquetReader(f"{bucket}/in/*.parquet", max_batch_bytes=3000, read_kwargs=options))
    assert pa.concat_tables([batch.to_pyarrow() for batch in batches]) == table
    assert {batch.source_files for batch in batches} == {(f"{bucket}/in/a.parquet",)}


def test_s3_reads_only_the_columns_needed(s3_server: S3Server, bucket: str, tmp_path: Path, monkeypatch) -> None:
    rows = [row for number in range(4) for row in sample(f"s{number}", image_bytes(number, 6 * 2**20))]
    pq.write_table(rows_table(rows), tmp_path / "a.parquet", use_dictionary=False, compression="none", row_group_size=3)
    s3_server.fs.put(str(tmp_path / "a.parquet"), f"{bucket}/a.parquet")
    fetched: list[int] = []
    usual = S3File._fetch_range

    def counting(file: S3File, start: int, end: int) -> bytes:
        fetched.append(end - start)
        return usual(file, start, end)

    monkeypatch.setattr(S3File, "_fetch_range", counting)
    options = {"columns": ["text_content"], "storage_options": s3_server.storage_options}
    (batch,) = InterleavedParquetReader(f"{bucket}/a.parquet", read_kwargs=options)
    assert batch.count(modality="text") == 4
    assert 0 < sum(fetched) < 12 * 2**20  # of 24 MiB


# ---------------------------------------------------------------- memory


def test_memory_follows_the_limit_and_not_the_file(tmp_path: Path) -> None:
    image = image_bytes(0, 2**18)
    rows = [{"sample_id": f"{row // 2}", "position": row % 2, "binary_content": image} for row in range(256)]
    # one row group of 64 MiB
    pq.write_table(
        rows_table(rows), tmp_path / "a.parquet", use_dictionary=False, compression="none", write_batch_size=2
    )
    limit = 2 * 2**20
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    most = 0
    for part in read_parquet_shard(str(tmp_path / "a.parquet"), max_batch_bytes=limit):
        most = max(most, pool.bytes_allocated() - before)
        assert row_bytes(part).sum() <= limit
    assert most < 5 * limit


_COUNTED = pa.proxy_memory_pool(pa.default_memory_pool())


def test_images_of_a_dictionary_are_not_copied(tmp_path: Path) -> None:
    image = image_bytes(0, 2**20)
    rows = [{"sample_id": f"{row}", "binary_content": bytes([row]) + image} for row in range(32)]
    pq.write_table(rows_table(rows), tmp_path / "a.parquet", use_dictionary=["binary_content"])
    usual = pa.default_memory_pool()
    pa.set_memory_pool(_COUNTED)
    try:
        (whole,) = read_parquet_shard(str(tmp_path / "a.parquet"))
        size = whole["binary_content"].nbytes
        # Arrow holds the page, what it found in it, and the dictionary
        assert _COUNTED.max_memory() < 3.2 * size
        assert _COUNTED.bytes_allocated() < 1.1 * size
        del whole
        # a small part of a dictionary does not keep all of it
        first = next(iter(read_parquet_shard(str(tmp_path / "a.parquet"), max_batch_bytes=size // 8)))
        assert _COUNTED.bytes_allocated() < 1.2 * first["binary_content"].nbytes
        del first
    finally:
        pa.set_memory_pool(usual)


def test_a_large_dictionary_is_not_made_again_for_every_step(tmp_path: Path) -> None:
    image = image_bytes(0, 2**20)
    rows = [{"sample_id": f"{row}", "binary_content": bytes([row]) + image} for row in range(32)]
    pq.write_table(rows_table(rows), tmp_path / "a.parquet", use_dictionary=["binary_content"], compression="none")
    usual, counted = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(counted)
    try:
        size = sum(
            part["binary_content"].nbytes
            for part in read_parquet_shard(str(tmp_path / "a.parquet"), max_batch_bytes=4 * 2**20)
        )
    finally:
        pa.set_memory_pool(usual)
    assert size > 32 * 2**20
    assert counted.total_bytes_allocated() < 6 * size


def test_fields_of_an_iterator_are_read_from_every_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        pq.write_table(shard_table(name), tmp_path / f"{name}.parquet")
    found = list(InterleavedParquetReader(tmp_path, fields=iter(["score"])))
    assert [batch.to_pyarrow()["score"].null_count for batch in found] == [0, 0]
    with pytest.raises(OptionError, match="fields are names of columns, got 1"):
        InterleavedParquetReader(tmp_path, fields=[1])
