from pathlib import Path

import pyarrow as pa
import pytest

from interleaved_assets.io.formats.registry import PARQUET, TAR, all_formats
from interleaved_assets.io.formats.shard import format_of, read_shard, write_shard
from interleaved_assets.io.parquet.reader import parquet_shard_schema, read_parquet_shard
from interleaved_assets.io.storage.limits import TarLimits
from interleaved_assets.io.tar.reader import ReadOptions, read_tar_shard
from interleaved_assets.model.columns import REQUIRED_COLUMNS
from interleaved_assets.model.errors import IncompleteShard, OptionError, ShardError
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets_tests.documents import good_shard
from interleaved_assets_tests.documents import write_shard as write_documents


def rows(path: Path) -> list[dict[str, object]]:
    table = pa.concat_tables(read_shard(str(path)))
    # where bytes come from differs from file to file
    return table.drop_columns("source_ref").to_pylist()


@pytest.mark.parametrize("ending", [".parquet", ".tar", ".tar.gz", ".TGZ"])
def test_what_is_written_in_any_form_is_read_back(tmp_path: Path, ending: str) -> None:
    source = good_shard(tmp_path / "a.tar")
    (table,) = read_shard(str(source))
    with write_shard(str(tmp_path / f"b{ending}"), table.schema) as out:
        out.write(table)
    assert rows(tmp_path / f"b{ending}") == rows(source)
    assert len(rows(source)) == 13


def test_the_form_is_seen_from_the_content(tmp_path: Path) -> None:
    (table,) = read_shard(str(good_shard(tmp_path / "a.tar")))
    with write_shard(str(tmp_path / "b.parquet"), table.schema) as out:
        out.write(table)
    misnamed = (tmp_path / "b.parquet").rename(tmp_path / "c.tar")
    assert format_of(str(misnamed)).name == "parquet"
    assert len(rows(misnamed)) == 13
    assert format_of(str(tmp_path / "a.tar")).name == "tar"


def test_a_file_of_another_name_is_read_as_a_tar(tmp_path: Path) -> None:
    source = good_shard(tmp_path / "a.tar")
    other = source.rename(tmp_path / "a.webdataset")
    assert (format_of(str(other)), len(rows(other))) == (TAR, 13)


def test_every_format_can_be_read_without_the_bytes_of_locators(tmp_path: Path) -> None:
    (table,) = read_shard(str(good_shard(tmp_path / "a.tar")))
    bare = table.set_column(5, "binary_content", pa.nulls(table.num_rows, pa.large_binary()))
    for one in (one for one in all_formats() if one.write):
        uri = str(tmp_path / f"b{one.endings[0]}")
        with write_shard(uri, table.schema) as out:
            out.write(table if one is TAR else bare)
        (lazy,) = one.read(uri, ReadOptions())
        assert (lazy.num_rows, lazy["binary_content"].null_count) == (13, 13)
        (filled,) = one.read(uri, ReadOptions(materialize=True, allowed_roots=[str(tmp_path)]))
        assert filled["binary_content"].equals(table["binary_content"])
    (keys,) = PARQUET.read(uri, ReadOptions(columns=REQUIRED_COLUMNS))
    assert keys.column_names == list(REQUIRED_COLUMNS)


def test_a_limit_that_is_none_is_refused_before_a_tar_is_read(tmp_path: Path) -> None:
    tables = read_shard(str(good_shard(tmp_path / "a.tar")), limits=TarLimits(max_columns=0))
    with pytest.raises(OptionError, match="max_columns must be a whole number from 1, got 0"):
        next(tables)


def test_a_shard_without_samples_gives_one_empty_table(tmp_path: Path) -> None:
    empty = write_documents(tmp_path / "a.tar", {})
    (table,) = read_shard(str(empty))
    assert table.schema == INTERLEAVED_SCHEMA
    with write_shard(str(tmp_path / "b.parquet"), table.schema) as out:
        out.write(table)
    assert [part.num_rows for part in read_shard(str(tmp_path / "b.parquet"))] == [0]


def test_parts_are_bounded_and_of_one_schema(tmp_path: Path) -> None:
    parts = list(read_shard(str(good_shard(tmp_path / "a.tar")), max_batch_bytes=12_000))
    assert [part.num_rows for part in parts] == [4, 4, 5]
    assert len({part.schema for part in parts}) == 1


def test_bytes_of_parquet_rows_are_fetched_from_allowed_roots_alone(tmp_path: Path) -> None:
    (table,) = read_shard(str(good_shard(tmp_path / "raw/a.tar")))
    bare = table.set_column(5, "binary_content", pa.nulls(table.num_rows, pa.large_binary()))
    (tmp_path / "out").mkdir()
    with write_shard(str(tmp_path / "out/b.parquet"), bare.schema) as out:
        out.write(bare)
    (refused,) = read_shard(str(tmp_path / "out/b.parquet"))
    assert {str(error).partition(":")[0] for error in refused["materialize_error"].drop_null()} == {"forbidden_path"}
    (fetched,) = read_shard(str(tmp_path / "out/b.parquet"), allowed_roots=[str(tmp_path / "raw")])
    assert fetched["binary_content"].equals(table["binary_content"])


def test_what_is_no_shard_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").touch()
    with pytest.raises(ShardError, match=r"a\.parquet is not a sound Parquet file"):
        list(read_shard(str(tmp_path / "a.parquet")))
    (tmp_path / "b").write_text("no shard")
    with pytest.raises(ShardError, match="b is not a tar"):
        list(read_shard(str(tmp_path / "b")))
    cut = tmp_path / "cut.tar"
    cut.write_bytes(good_shard(tmp_path / "c.tar").read_bytes()[:20_000])
    with pytest.raises(IncompleteShard, match="truncated_shard"):
        list(read_shard(str(cut), accept_incomplete=False))
    with pytest.raises(OptionError, match=r"cannot write a\.zip: its name has to end in"):
        write_shard("a.zip", INTERLEAVED_SCHEMA)


def test_a_path_is_taken_like_its_text_and_anything_else_is_refused(tmp_path: Path) -> None:
    (table,) = read_shard(good_shard(tmp_path / "a.tar"))
    for ending in (".tar", ".parquet"):
        with write_shard(tmp_path / f"b{ending}", table.schema) as out:
            out.write(table)
        assert next(iter(read_shard(tmp_path / f"b{ending}"))).num_rows == table.num_rows
    assert next(read_tar_shard(tmp_path / "b.tar")).num_rows == table.num_rows
    assert next(read_parquet_shard(tmp_path / "b.parquet")).num_rows == table.num_rows
    assert parquet_shard_schema(tmp_path / "b.parquet").names == table.schema.names
    for wrong in (None, 5, b"a.tar"):
        with pytest.raises(OptionError, match="uri is a path or a URL, got "):
            read_shard(wrong)
        with pytest.raises(OptionError, match="uri is a path or a URL, got "):
            write_shard(wrong, table.schema)
