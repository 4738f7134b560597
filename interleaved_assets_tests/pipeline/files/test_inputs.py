from pathlib import Path

import pytest

from interleaved_assets.model.errors import OptionError, StorageError
from interleaved_assets.pipeline.files.inputs import find_shard_files
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import write_shard
from interleaved_assets_tests.s3 import S3Server


def names(*arguments: str) -> list[str]:
    return [file.name for file in find_shard_files(arguments, Settings().storage)]


def test_names_are_paths_below_what_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.tar", "deep/b.tar.gz", "deep/c.d.parquet", "other.txt", "_hidden/x.tar", "deep/.part.tar"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    assert names(str(tmp_path)) == ["a", "deep/b", "deep/c.d.parquet"]
    assert names(".") == ["a", "deep/b", "deep/c.d.parquet"]
    assert names("deep/*") == ["b", "c.d.parquet"]
    assert names("*/b.tar.gz") == ["deep/b"]
    assert names("deep/b.tar.gz", "other.txt", "deep") == ["b", "other.txt", "c.d.parquet"]
    # what is named is taken
    assert names("_hidden/x.tar", "_hidden") == ["x"]


def test_files_of_a_bucket_are_named_alike(s3_environment: S3Server, bucket: str) -> None:
    for name in ("raw/a.tar", "raw/deep/b.tar"):
        s3_environment.fs.pipe(f"{bucket}/{name}", b"x")
    assert names(f"{bucket}/raw") == ["a", "deep/b"]
    assert names(f"{bucket}/raw/", f"{bucket}/raw/deep/*.tar") == ["a", "deep/b"]
    assert names(f"{bucket}/raw/deep/b.tar") == ["b"]


def test_missing_empty_and_hidden_inputs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot find .*nope\.tar"):
        names(str(tmp_path / "nope.tar"))
    with pytest.raises(StorageError, match=r"holds no file that ends in \.tar"):
        names(str(tmp_path))
    with pytest.raises(OptionError, match="an input is an empty text"):
        names("")
    write_shard(tmp_path / "_x.tar", {})
    with pytest.raises(StorageError, match="begin with _ or"):
        names(str(tmp_path))
