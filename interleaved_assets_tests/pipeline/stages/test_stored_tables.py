from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interleaved_assets.model.errors import ShardError, StorageError, StorageUnavailable
from interleaved_assets.pipeline.stages.outputs import find_table, read_scores
from interleaved_assets.settings.shard_paths import ShardPaths
from interleaved_assets_tests.s3 import S3Server

TABLE = pa.table({"a": pa.array(range(50_000), pa.int32()), "thumbnail": [b"x" * 3] * 50_000})


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path, compression="zstd", use_dictionary=False)
    return path


def read(path: Path | str, options: dict | None = None, left_out: tuple[str, ...] = ()) -> pa.Table:
    table = find_table(str(path), ShardPaths("", "cc/a", options or {}), "image_scores", left_out)
    assert table is not None
    return table


def test_all_columns_or_all_but_some(stored: Path) -> None:
    assert read(stored) == TABLE
    assert read(stored, left_out=("thumbnail", "one that it lacks")) == TABLE.select(["a"])


@pytest.mark.parametrize("damage", ["empty", "no Parquet", "cut", "data", "footer"])
def test_a_damaged_table_names_shard_file_and_what_to_do(stored: Path, damage: str) -> None:
    content = bytearray(stored.read_bytes())
    noise = np.random.default_rng(0).bytes(2000)
    if damage == "data":
        content[4:100_000] = noise * 50
    elif damage == "footer":
        content[-400:-100] = noise[:300]
    else:
        content = {"empty": bytearray(), "no Parquet": bytearray(noise), "cut": content[: len(content) // 2]}[damage]
    stored.write_bytes(content)
    with pytest.raises(
        ShardError,
        match=r"^shard cc/a: .*/a\.parquet is not a sound Parquet file: .+\. "
        r"Delete it and materialize image_scores again\.$",
    ):
        read(stored)


def test_the_error_for_a_missing_table_names_the_stage_to_run(tmp_path: Path, s3_server: S3Server, bucket: str) -> None:
    with pytest.raises(ShardError, match=r"^shard cc/a: .*/cc/a\.parquet is missing: materialize image_scores again$"):
        read_scores(ShardPaths(str(tmp_path), "cc/a"))
    with pytest.raises(ShardError, match=r"^shard cc/a: s3://.*/a\.parquet is missing: materialize image_scores"):
        read_scores(ShardPaths(bucket, "cc/a", s3_server.storage_options))


def test_a_table_in_a_bucket(stored: Path, s3_server: S3Server, bucket: str) -> None:
    s3_server.fs.put(str(stored), f"{bucket}/a.parquet")
    assert read(f"{bucket}/a.parquet", s3_server.storage_options, left_out=("a",)) == TABLE.select(["thumbnail"])


def test_a_storage_error_is_not_reported_as_damage(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StorageError, match="is not a regular file"):
        read(stored.parent)

    def fail(file: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(pq, "ParquetFile", fail)
    error: Exception = TimeoutError("timed out")
    with pytest.raises(StorageUnavailable, match=r"cannot read .*/a\.parquet: timed out"):
        read(stored)
    error = pa.ArrowMemoryError("malloc of size 1 failed")
    with pytest.raises(ShardError, match=r"a\.parquet needs more memory than is available: malloc of size 1 failed\."):
        read(stored)
