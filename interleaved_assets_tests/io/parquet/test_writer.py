"""Writing Parquet: row groups, deterministic bytes, no partial files."""

import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.io.parquet.writer import InterleavedParquetWriter, parquet_shard
from interleaved_assets.io.rows.batches import row_bytes
from interleaved_assets.model.batch import InterleavedBatch
from interleaved_assets.model.errors import OptionError, ShardError
from interleaved_assets.model.ledger import empty_ledger
from interleaved_assets_tests.io.row_tables import image_bytes, rows_table, sample
from interleaved_assets_tests.s3 import S3Server


def shard_table(samples: int = 6, image_size: int = 3000) -> pa.Table:
    rows = []
    for number in range(samples):
        rows += sample(f"s{number}", image_bytes(number, image_size), image_bytes(90 + number, image_size))
    tags = pa.array([[f"t{number % 3}"] for number in range(len(rows))])
    return rows_table(rows, tags=tags)


def write(uri: Path | str, *tables: pa.Table, **options: object) -> str:
    with parquet_shard(str(uri), tables[0].schema, **options) as shard:
        for table in tables:
            shard.write(table)
    assert shard.rows == sum(table.num_rows for table in tables)
    return shard.output.checksum


def test_a_shard_knows_its_rows_size_and_hash(tmp_path: Path) -> None:
    table = shard_table()
    with parquet_shard(str(tmp_path / "a.parquet"), table.schema) as shard:
        shard.write(table)
        assert not (tmp_path / "a.parquet").exists()
        assert shard.output.checksum is None
    content = (tmp_path / "a.parquet").read_bytes()
    assert (shard.rows, shard.output.size) == (30, len(content))
    assert shard.output.checksum == xxhash.xxh3_128_hexdigest(content)
    assert pq.read_table(tmp_path / "a.parquet") == table


def test_row_groups_are_bounded_and_end_between_samples(tmp_path: Path) -> None:
    table = shard_table()
    size = int(row_bytes(table.slice(0, 5)).sum())
    write(tmp_path / "a.parquet", table, row_group_bytes=int(2.5 * size))
    file = pq.ParquetFile(tmp_path / "a.parquet")
    assert [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)] == [10, 10, 10]
    write(tmp_path / "b.parquet", table, row_group_bytes=1)
    assert pq.ParquetFile(tmp_path / "b.parquet").num_row_groups == 6
    assert pq.read_table(tmp_path / "b.parquet") == table


@given(
    st.lists(st.integers(0, 30), max_size=5), st.sampled_from([1, 7000, 2**26]), st.sampled_from([10, 40_000, 600_000])
)
def test_the_bytes_depend_on_the_rows_alone(tmp_path_factory, cuts: list[int], limit: int, image_size: int) -> None:
    table = shard_table(image_size=image_size)
    folder = tmp_path_factory.mktemp("bytes")
    whole = write(folder / "a.parquet", table, row_group_bytes=limit)
    borders = [0, *sorted(cuts), table.num_rows]
    pieces = [table.slice(first, last - first) for first, last in itertools.pairwise(borders)]
    assert write(folder / "b.parquet", *pieces, row_group_bytes=limit) == whole
    # nor on where in memory they lie, nor on what lies beside them
    assert write(folder / "c.parquet", pa.concat_tables([table, table]).slice(30, 30), row_group_bytes=limit) == whole


def test_the_bytes_do_not_depend_on_threads(tmp_path: Path) -> None:
    table = shard_table(image_size=100_000)
    threads = pa.cpu_count()
    try:
        hashes = set()
        for count in (1, 4):
            pa.set_cpu_count(count)
            hashes.add(write(tmp_path / f"{count}.parquet", table, row_group_bytes=400_000))
    finally:
        pa.set_cpu_count(threads)
    assert len(hashes) == 1


def test_images_are_stored_as_they_are_and_the_rest_is_compressed(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", shard_table())
    group = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(0)
    columns = {group.column(index).path_in_schema: group.column(index) for index in range(group.num_columns)}
    image = columns["binary_content"]
    assert (image.compression, image.is_stats_set, image.has_dictionary_page) == ("UNCOMPRESSED", False, False)
    assert {column.compression for name, column in columns.items() if name != "binary_content"} == {"ZSTD"}
    assert columns["tags.list.element"].has_dictionary_page
    assert columns["sample_id"].is_stats_set
    assert not columns["text_content"].is_stats_set
    # several pages, so that a reader need not hold all images of a row group
    assert image.total_uncompressed_size > 12 * 3000


def test_an_empty_shard_has_its_schema(tmp_path: Path) -> None:
    schema = shard_table().schema
    with parquet_shard(str(tmp_path / "a.parquet"), schema):
        pass
    found = pq.read_table(tmp_path / "a.parquet")
    assert (found.num_rows, found.schema) == (0, schema)


def test_other_tables_than_rows_can_be_written(tmp_path: Path) -> None:
    write(tmp_path / "ledger.parquet", empty_ledger())
    write(tmp_path / "plain.parquet", pa.table({"a": [1, 2]}), pa.table({"a": [3]}))
    assert pq.read_table(tmp_path / "plain.parquet")["a"].to_pylist() == [1, 2, 3]


def test_columns_are_brought_into_order_and_type(tmp_path: Path) -> None:
    table = shard_table(2)
    other = table.select(table.column_names[::-1])
    other = other.set_column(other.column_names.index("position"), "position", other["position"].cast(pa.int64()))
    assert write(tmp_path / "a.parquet", table, other) != write(tmp_path / "b.parquet", table)
    assert pq.read_table(tmp_path / "a.parquet") == pa.concat_tables([table, table])


def test_rows_that_do_not_fit_the_schema_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    table = shard_table(2)
    with pytest.raises(OptionError, match=r"a\.parquet do not have the columns of its schema: tags, x"):
        write(tmp_path / "a.parquet", table, table.rename_columns([*table.column_names[:-1], "x"]))
    nulls = table.set_column(0, "sample_id", pa.nulls(table.num_rows, pa.string()))
    with pytest.raises(ShardError, match="column 'sample_id' must not be null"):
        write(tmp_path / "a.parquet", table, nulls)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["local", "s3"])
def test_an_exception_in_between_leaves_nothing(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if place == "local":
        folder, options = str(tmp_path), {}
    else:
        folder, options = request.getfixturevalue("bucket"), request.getfixturevalue("s3_server").storage_options
    table = shard_table(2, image_size=5 * 2**20)
    with pytest.raises(KeyError, match="in between"):
        _write_and_raise(f"{folder}/a.parquet", table, options)
    if place == "local":
        assert list(tmp_path.iterdir()) == []
    else:
        server: S3Server = request.getfixturevalue("s3_server")
        bucket = folder.removeprefix("s3://")
        assert server.fs.find(folder) == []
        assert server.fs.call_s3("list_multipart_uploads", Bucket=bucket).get("Uploads", []) == []


def _write_and_raise(uri: str, table: pa.Table, options: dict) -> None:
    with parquet_shard(uri, table.schema, storage_options=options, row_group_bytes=2**20) as shard:
        shard.write(table)
        shard.write(table)
        raise KeyError("in between")


def test_s3_gets_the_same_bytes(s3_server: S3Server, bucket: str, tmp_path: Path) -> None:
    table = shard_table(3, image_size=4 * 2**20)
    local = write(tmp_path / "a.parquet", table)
    assert write(f"{bucket}/a.parquet", table, storage_options=s3_server.storage_options) == local
    assert s3_server.fs.cat(f"{bucket}/a.parquet") == (tmp_path / "a.parquet").read_bytes()


def test_options(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"compression must be one of zstd, snappy, .* none, got 'zip'"):
        write(tmp_path / "a.parquet", shard_table(), compression="zip")
    writer = InterleavedParquetWriter(
        str(tmp_path), write_kwargs={"compression": "snappy", "row_group_bytes": "10 KiB", "storage_options": {}}
    )
    (path,) = writer.write(InterleavedBatch(shard_table()))
    metadata = pq.read_metadata(path)
    assert metadata.num_row_groups == 6
    assert metadata.row_group(0).column(0).compression == "SNAPPY"
    for wrong, message in (
        ({"compresion": "zstd"}, "unknown options compresion; known are compression, max_member_bytes, "),
        ({"row_group_bytes": "big"}, "row_group_bytes must be bytes"),
    ):
        with pytest.raises(OptionError, match=message):
            InterleavedParquetWriter(str(tmp_path), write_kwargs=wrong)
