"""Damaged and hostile Parquet files are read correctly or raise one error; the process never aborts."""

import base64
import os
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interleaved_assets.io.parquet.reader import InterleavedParquetReader, read_parquet_shard
from interleaved_assets.io.parquet.seal import MARK, SEAL_BYTES
from interleaved_assets.io.parquet.writer import InterleavedParquetWriter, parquet_shard
from interleaved_assets.io.tar.writer import InterleavedWebdatasetWriter
from interleaved_assets.model.batch import InterleavedBatch
from interleaved_assets.model.errors import InterleavedError, OptionError, ShardError, StorageError
from interleaved_assets_tests.io.row_tables import rows_table, sample


def shard_table() -> pa.Table:
    rows = [row for number in range(3) for row in sample(f"s{number}", b"image")]
    tags = pa.array([[("k", "v"), ("j", None)]] * len(rows), pa.map_(pa.string(), pa.string()))
    return rows_table(rows, tags=tags, words=pa.array([["x", "y"]] * len(rows)))


def text_rows(count: int) -> pa.Table:
    rows = [{"sample_id": f"s{row}", "position": 0, "text_content": "t" * 1000} for row in range(count)]
    words = pa.array([["x"], [], None, ["y", "z"], ["x"]] * (count // 5))
    names = ["sample_id", "position", "modality", "kind", "text_content", "words"]
    return rows_table(rows, kind=pa.array(range(count)), words=words).select(names)


def write_plainly(table: pa.Table, path: Path, **options: object) -> bytes:
    """Write ``table`` so that the numbers in its footer and page headers are found by their bytes."""
    pq.write_table(table, path, use_dictionary=False, compression="none", store_schema=False, **options)
    return path.read_bytes()


def with_nth(content: bytes, before: bytes, after: bytes, number: int) -> bytes:
    parts = content.split(before)
    return before.join(parts[: number + 1]) + after + before.join(parts[number + 1 :])


def read(path: Path) -> pa.Table:
    return pa.concat_tables(read_parquet_shard(str(path)))


def footer_length(content: bytes) -> int:
    return struct.unpack("<I", content[-8:-4])[0]


def outcomes(path: Path, content: bytes, bits: list[int], good: pa.Table) -> list[str]:
    """What reading ``content`` with one bit flipped gives, for each of ``bits``, in a child process."""
    results, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            for bit in bits:
                flipped = bytearray(content)
                flipped[bit // 8] ^= 1 << bit % 8
                path.write_bytes(flipped)
                try:
                    outcome = b"c" if read(path).equals(good) else b"d"
                except InterleavedError:
                    outcome = b"r"
                os.write(writing, outcome)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(results) as file:
        found = file.read()
    # an exception that is not ours ends the child as well
    assert os.waitpid(child, 0)[1] == 0, f"the process died over bit {bits[len(found)]}"
    return list(found)


def test_every_flipped_bit_in_a_sealed_footer_is_refused(tmp_path: Path) -> None:
    table = shard_table()
    with parquet_shard(str(tmp_path / "a.parquet"), table.schema) as shard:
        shard.write(table)
    content = (tmp_path / "a.parquet").read_bytes()
    first = len(content) - 8 - footer_length(content) - SEAL_BYTES
    bits = np.random.default_rng(1).integers(first * 8, len(content) * 8, 150).tolist()
    # the seal itself, the length and the magic
    bits += [first * 8, (first + len(MARK)) * 8, (first + SEAL_BYTES - 1) * 8, len(content) * 8 - 60]
    assert set(outcomes(tmp_path / "b.parquet", content, bits, table)) == {"r"}


def test_flipped_bits_in_unsealed_footers_do_not_abort_the_process(tmp_path: Path) -> None:
    table = shard_table()
    pq.write_table(table, tmp_path / "a.parquet")
    content = (tmp_path / "a.parquet").read_bytes()
    first = len(content) - 8 - footer_length(content)
    bits = np.random.default_rng(2).integers(first * 8, len(content) * 8, 250).tolist()
    found = outcomes(tmp_path / "b.parquet", content, bits, table)
    assert set(found) <= {"c", "d", "r"}
    assert found.count("r") > 50


def test_other_readers_read_sealed_files(tmp_path: Path) -> None:
    table = shard_table()
    with parquet_shard(str(tmp_path / "a.parquet"), table.schema) as shard:
        shard.write(table)
    assert (tmp_path / "a.parquet").read_bytes().count(MARK) == 2
    assert pq.read_table(tmp_path / "a.parquet") == table
    assert pq.ParquetFile(tmp_path / "a.parquet").metadata.num_rows == table.num_rows


def with_invalid(name: str) -> pa.Table:
    """The table with a string in column ``name`` that is not UTF-8, as no writer of ours lets it through."""
    table = shard_table()
    index = table.column_names.index(name)
    values = [b"\xff"] * table.num_rows
    broken = pa.Array.from_buffers(pa.string(), len(values), pa.array(values, pa.binary()).buffers())
    return table.set_column(index, table.schema.field(index), broken)


@pytest.mark.parametrize(
    "name", ["sample_id", "modality", "content_type", "text_content", "source_ref", "materialize_error"]
)
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_strings_that_are_not_utf8_are_refused(tmp_path: Path, name: str, use_dictionary: bool) -> None:
    pq.write_table(with_invalid(name), tmp_path / "a.parquet", use_dictionary=use_dictionary)
    with pytest.raises(ShardError, match=r"a\.parquet is not a sound Parquet file: .*Invalid UTF8"):
        read(tmp_path / "a.parquet")
    with (
        pytest.raises(ShardError, match=rf"column '{name}': .*Invalid UTF8"),
        parquet_shard(str(tmp_path / "b.parquet"), shard_table().schema) as shard,
    ):
        shard.write(with_invalid(name))


def test_a_column_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    pq.write_table(shard_table().append_column("kind", pa.array(range(9))), tmp_path / "a.parquet", store_schema=False)
    content = (tmp_path / "a.parquet").read_bytes().replace(b"kind", b"k\xffnd")
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(ShardError, match=r"a\.parquet is not a sound Parquet file"):
        read(tmp_path / "a.parquet")


def test_a_map_whose_keys_may_be_null_is_refused(tmp_path: Path) -> None:
    """A null key would make Arrow abort the process; it refuses the schema."""
    pq.write_table(shard_table(), tmp_path / "a.parquet", store_schema=False)
    content = (tmp_path / "a.parquet").read_bytes()
    required, optional = b"%\x00\x18\x03key", b"%\x02\x18\x03key"
    assert content.count(required) == 1
    (tmp_path / "a.parquet").write_bytes(content.replace(required, optional))
    with pytest.raises(ShardError, match="Map keys must be annotated as required"):
        read(tmp_path / "a.parquet")


def test_views_are_read_as_strings_and_bytes(tmp_path: Path) -> None:
    table = shard_table()
    views = {"note": pa.array(["é"] * 9, pa.string_view()), "raw": pa.array([b"\xff"] * 9, pa.binary_view())}
    for name, values in views.items():
        table = table.append_column(name, values)
    table = table.set_column(0, "sample_id", table["sample_id"].cast(pa.string_view()))
    for use_dictionary in (True, False):
        pq.write_table(table, tmp_path / "a.parquet", use_dictionary=use_dictionary)
        found = read(tmp_path / "a.parquet")
        assert [found.schema.field(name).type for name in ("sample_id", "note", "raw")] == [
            pa.string(),
            pa.string(),
            pa.binary(),
        ]
        assert (found["note"].to_pylist(), found["raw"].to_pylist()) == (["é"] * 9, [b"\xff"] * 9)
    # beside a column with a dictionary, whose rows are measured before they are decoded
    table = table.append_column("kind", pa.array(["a"] * 9).dictionary_encode())
    pq.write_table(table, tmp_path / "a.parquet", use_dictionary=["kind"])
    assert read(tmp_path / "a.parquet")["note"].to_pylist() == ["é"] * 9


@pytest.mark.parametrize("dictionary", [True, False])
def test_steps_follow_decoded_sizes(tmp_path: Path, dictionary: bool) -> None:
    image, count = b"x" * 200_000, 300
    rows = [{"sample_id": f"{row}", "position": 0} for row in range(count)]
    table = rows_table(rows).drop_columns("binary_content")
    table = table.append_column("binary_content", pa.array([image] * count))
    table = table.append_column("more", pa.array([[{"a": image[:100_000]}]] * count))
    # small pages, since a page is read as a whole
    options = {"compression": "none", "write_batch_size": 2, "data_page_size": 2**20}
    pq.write_table(table, tmp_path / "a.parquet", use_dictionary=dictionary, **options)
    limit, pool = 4 * 2**20, pa.default_memory_pool()
    del table
    before, most, found = pool.bytes_allocated(), 0, 0
    for part in read_parquet_shard(str(tmp_path / "a.parquet"), max_batch_bytes=limit):
        most = max(most, pool.bytes_allocated() - before)
        found += part.num_rows
    assert found == count
    # of 90 MB
    assert most < 12 * limit


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([("a", -1, "text")], "metadata rows, and only they, have position -1: first sample 'a', position -1, text"),
        ([("b", 0, "text"), ("b", 0, "text")], "1 rows repeat the key .*: first sample 'b', position 0, text"),
        ([("c", -2, "text")], "a position is below -1: first sample 'c', position -2, text"),
    ],
)
def test_both_writers_refuse_the_same_keys(tmp_path: Path, keys: list[tuple], message: str) -> None:
    rows = [{"sample_id": a, "position": b, "modality": c, "text_content": "t"} for a, b, c in keys]
    for writer in (InterleavedParquetWriter, InterleavedWebdatasetWriter):
        with pytest.raises(OptionError, match=f"^cannot write .*{message}"):
            writer(str(tmp_path)).write(InterleavedBatch(rows_table(rows)))
        assert list(tmp_path.iterdir()) == []


def test_a_name_twice_in_arrow_s_own_schema_is_no_error(tmp_path: Path) -> None:
    table = shard_table().append_column("kind", pa.array(range(9)))
    twice = pa.schema([*table.schema, pa.field("kind", pa.int8())])
    encoded = base64.b64encode(twice.serialize().to_pybytes())
    stored = table.replace_schema_metadata({"ARROW:schema": encoded})
    pq.write_table(stored, tmp_path / "a.parquet", store_schema=False)
    assert read(tmp_path / "a.parquet")["kind"].to_pylist() == list(range(9))


@pytest.mark.parametrize("name", ["", "a.b", "_row", "é"])
def test_odd_column_names(tmp_path: Path, name: str) -> None:
    table = shard_table().append_column(name, pa.array(range(9)))
    pq.write_table(table, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet")[name].to_pylist() == list(range(9))


def test_a_time_outside_its_day_is_refused_by_reader_and_writer(tmp_path: Path) -> None:
    table = shard_table().append_column("at", pa.array([10**12] * 9, pa.time64("us")))
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(ShardError, match=r"a\.parquet is not a sound Parquet file: .*not within the acceptable range"):
        read(tmp_path / "a.parquet")
    with (
        pytest.raises(ShardError, match=r"column 'at': .*not within the acceptable range"),
        parquet_shard(str(tmp_path / "b.parquet"), table.schema) as shard,
    ):
        shard.write(table)


@pytest.mark.parametrize(("stated", "zigzag"), [(0, b"\0"), (4, b"\x08"), (6, b"\x0c")])
@pytest.mark.parametrize(("number", "column"), [(0, "sample_id"), (1, "position"), (3, "kind")])
def test_a_footer_whose_columns_have_other_rows_than_its_row_group_is_refused(
    tmp_path: Path, number: int, column: str, stated: int, zigzag: bytes
) -> None:
    content = write_plainly(text_rows(5), tmp_path / "a.parquet")
    # codec and number of values of each column but the lists, which have 6 values
    values = b"\x15\x00\x16\x0a"
    assert content.count(values) == 5
    (tmp_path / "a.parquet").write_bytes(with_nth(content, values, values[:-1] + zigzag, number))
    with pytest.raises(
        ShardError, match=rf"a\.parquet .*row group 0 has 5 rows, and its column '{column}' has {stated} "
    ):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize(("stated", "zigzag"), [(0, b"\0"), (4, b"\x08")])
def test_a_footer_with_fewer_values_of_lists_than_rows_is_refused(tmp_path: Path, stated: int, zigzag: bytes) -> None:
    content = write_plainly(text_rows(5), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet")["words"].to_pylist() == [["x"], [], None, ["y", "z"], ["x"]]
    assert content.count(b"\x15\x00\x16\x0c") == 1
    (tmp_path / "a.parquet").write_bytes(content.replace(b"\x15\x00\x16\x0c", b"\x15\x00\x16" + zigzag))
    with pytest.raises(ShardError, match=rf"row group 0 has 5 rows, and its column 'words.list.element' has {stated} "):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize("field", [b"\x1c", b"\x19\x19"], ids=["structs", "lists"])
def test_a_footer_that_is_nested_without_end_is_refused(tmp_path: Path, field: bytes) -> None:
    footer = field * 50_000
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(ShardError, match=r"a\.parquet is not a sound .*its footer cannot be read: RecursionError"):
        read(tmp_path / "a.parquet")


def test_a_footer_that_states_other_rows_than_its_row_groups_is_refused(tmp_path: Path) -> None:
    content = write_plainly(text_rows(10), tmp_path / "a.parquet", row_group_size=5)
    # the list of row groups follows the number of rows
    assert content.count(b"\x16\x14\x19\x2c") == 1
    (tmp_path / "a.parquet").write_bytes(content.replace(b"\x16\x14\x19\x2c", b"\x16\x1e\x19\x2c"))
    with pytest.raises(ShardError, match=r"a\.parquet .*its footer states 15 rows, and its row groups have 10"):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize("limit", [None, 2000])
def test_a_column_with_fewer_rows_than_its_row_group_is_refused(tmp_path: Path, limit: int | None) -> None:
    """As Arrow's own test file ARROW-GH-41317.parquet, whose columns have different numbers of rows."""
    content = write_plainly(text_rows(10), tmp_path / "a.parquet", row_group_size=5)
    # number of values in a page's header, here of the second row group's text_content
    assert content.count(b"\x2c\x15\x0a") == 10
    (tmp_path / "a.parquet").write_bytes(with_nth(content, b"\x2c\x15\x0a", b"\x2c\x15\x04", 9))
    with pytest.raises(ShardError) as caught:
        list(read_parquet_shard(str(tmp_path / "a.parquet"), max_batch_bytes=limit))
    found = "columns do not have the same size"  # by Arrow, where all of them are decoded at once
    if limit:
        found = "row group 1 has 5 rows, and reading it gave 2: column 'text_content' has 2"
    assert str(caught.value).startswith(f"{tmp_path}/a.parquet is not a sound Parquet file: {found}. ")


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    rows = [{"sample_id": f"s{row}", "position": 0, "modality": "image"} for row in range(200)]
    images = [np.random.default_rng(row).bytes(100_000) for row in range(200)]
    table = rows_table(rows).drop_columns("binary_content").append_column("binary_content", pa.array(images))
    path = tmp_path / "a.parquet"
    # a page has the rows of a step: the file seems to end where the next page would begin
    pq.write_table(table, path, use_dictionary=False, write_batch_size=10, data_page_size=100_000)
    batches = iter(InterleavedParquetReader(str(path), max_batch_bytes=2**20))
    assert next(batches).count() == 10
    os.truncate(path, 1000)
    with pytest.raises(StorageError, match=r"a\.parquet changed while it was read"):
        list(batches)
