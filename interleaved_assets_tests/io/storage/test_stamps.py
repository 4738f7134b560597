"""The stamp of a commit equals the stamp read from the file, until the file is replaced."""

import shutil
from hashlib import sha256
from pathlib import Path

import fsspec
import pytest
import s3fs
from xxhash import xxh3_128_hexdigest as xxh3

from interleaved_assets.io.storage import (
    atomic_output,
    content_hash,
    list_stamps,
    read_stamp,
)
from interleaved_assets.io.storage.stamps import stamp_of
from interleaved_assets.model.errors import StorageError, StorageUnavailable
from interleaved_assets_tests.elsewhere import elsewhere
from interleaved_assets_tests.s3 import S3Server

PART = 16 * 2**20


def write(uri: str, content: bytes, options: dict[str, object] | None = None) -> str | None:
    with atomic_output(uri, options) as output:
        output.write(content)
        assert output.stamp is None
    return output.stamp


def test_the_stamp_of_a_commit_is_the_stamp_of_the_file_until_it_is_replaced(tmp_path: Path) -> None:
    uri = str(tmp_path / "a.bin")
    first = write(uri, b"first")
    assert first is not None
    assert read_stamp(uri) == read_stamp(f"file://{uri}") == first
    second = write(uri, b"other")
    assert read_stamp(uri) == second != first
    (tmp_path / "a.bin").write_bytes(b"third")  # in place, and so under the same inode
    assert read_stamp(uri) not in (first, second)
    (tmp_path / "a.bin").unlink()
    assert read_stamp(uri) is None
    assert read_stamp(f"{uri}/below") is None


def test_files_of_one_size_written_right_after_each_other_have_different_stamps(tmp_path: Path) -> None:
    stamps = [write(str(tmp_path / "a.bin"), bytes([number])) for number in range(200)]
    assert len({str(stamp).rpartition("-")[0] for stamp in stamps}) == 200  # without the inode: it is used again


def test_a_commit_returns_the_stamp_of_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = str(tmp_path / "a.bin")
    rename, stamps = Path.replace, []

    def rename_and_be_replaced(path: Path, target: Path) -> Path:
        renamed = rename(path, target)
        monkeypatch.setattr(Path, "replace", rename)
        stamps.append(write(uri, b"other"))
        return renamed

    monkeypatch.setattr(Path, "replace", rename_and_be_replaced)
    own = write(uri, b"first")
    assert [read_stamp(uri)] == stamps != [own]


def test_a_copy_without_times_has_another_stamp_and_the_same_content(tmp_path: Path) -> None:
    stamp = write(str(tmp_path / "a.bin"), b"first")
    shutil.copyfile(tmp_path / "a.bin", tmp_path / "b.bin")
    assert read_stamp(str(tmp_path / "b.bin")) != stamp
    assert content_hash(str(tmp_path / "b.bin")) == content_hash(str(tmp_path / "a.bin")) == f"xxh3:{xxh3(b'first')}"
    assert content_hash(str(tmp_path / "c.bin")) is None
    with pytest.raises(StorageError, match="cannot read"):
        content_hash(str(tmp_path))


@pytest.mark.parametrize("content", [b"small", b"x" * (PART + 5)], ids=["in one request", "in parts"])
def test_in_a_bucket_the_stamp_comes_from_the_answer_to_the_upload(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    uri, options = f"{bucket}/a.bin", s3_server.storage_options
    upload = s3fs.S3FileSystem.call_s3

    def upload_and_be_replaced(fs: s3fs.S3FileSystem, method: str, *arguments: object, **named: object) -> object:
        answer = upload(fs, method, *arguments, **named)
        if method in ("put_object", "complete_multipart_upload"):
            upload(fs, "put_object", Bucket=bucket[5:], Key="a.bin", Body=b"another")
        return answer

    before = write(uri, content, options)
    assert before is not None
    assert before.startswith("etag:")
    assert before.endswith(f"-{len(content)}")
    assert read_stamp(uri, options) == before
    assert content_hash(uri, options) == f"xxh3:{xxh3(content)}"
    assert content_hash(uri, options, like="sha256:") == f"sha256:{sha256(content).hexdigest()}"
    with monkeypatch.context() as patches:
        patches.setattr(s3fs.S3FileSystem, "call_s3", upload_and_be_replaced)
        assert write(uri, content, options) == before
    assert s3_server.fs.cat_file(f"{bucket}/a.bin") == b"another"
    assert read_stamp(uri, options) not in (None, before)
    assert list_stamps(bucket, options) == {"a.bin": read_stamp(uri, options)}
    s3_server.fs.rm_file(uri)
    assert read_stamp(uri, options) is None
    assert content_hash(uri, options) is None


def test_an_unreachable_storage_is_not_a_missing_file() -> None:
    options = {
        "key": "k",
        "secret": "s",
        "endpoint_url": "http://127.0.0.1:9",
        "config_kwargs": {"retries": {"max_attempts": 0}},
    }
    with pytest.raises(StorageUnavailable):
        read_stamp("s3://bucket/a.bin", options)


def test_other_filesystems_stamp_moved_files_but_not_copies(tmp_path: Path) -> None:
    assert write("memory://stamps/a.bin", b"first") is None
    assert read_stamp("memory://stamps/a.bin") is not None
    fsspec.filesystem("memory").rm("/stamps", recursive=True)
    uri = elsewhere(tmp_path / "a.bin")
    assert read_stamp(uri) is None
    stamp = write(uri, b"first")
    assert read_stamp(uri) == stamp is not None


def test_a_stamp_is_of_the_etag_or_the_time_and_of_the_size() -> None:
    assert stamp_of({"type": "directory", "size": 0, "mtime": 1}) is None
    assert stamp_of({"type": "file", "size": 1}) == "modified:None-1"
    assert stamp_of({"size": 1, "mtime": 1.5}) == "modified:1.5-1"
    assert stamp_of({"size": 1, "mtime": 1.5, "ETag": '"0f"'}) == "etag:0f-1"


@pytest.fixture
def listed_folder(s3_server: S3Server, bucket: str) -> str:
    """A folder in a bucket with names of many kinds."""
    names = [
        "a&b",
        "a b",
        "a'b",
        "a+b",
        'a<b>"',
        "b%20c.json",
        "d/e/1",
        "d/e/2",
        "é",
        "日本",
        *(f"n/{number:03}" for number in range(40)),
    ]
    for name in names:
        s3_server.fs.pipe(f"{bucket}/folder/{name}", name.encode())
    s3_server.fs.pipe(f"{bucket}/folder-beside/a", b"1")
    return f"{bucket}/folder"


def test_a_listing_has_the_stamp_of_every_file(s3_server: S3Server, listed_folder: str) -> None:
    options = s3_server.storage_options
    infos = s3_server.fs.find(listed_folder, detail=True)
    start = len(listed_folder.removeprefix("s3://")) + 1
    expected = {path[start:]: stamp_of(info) for path, info in infos.items()}
    assert len(expected) == 50
    assert list_stamps(listed_folder, options) == expected
    assert list_stamps(f"{listed_folder}/none", options) == {}
    bucket = listed_folder.removesuffix("/folder")
    of_bucket = {f"folder/{name}": stamp for name, stamp in expected.items()}
    assert list_stamps(bucket, options) == of_bucket | {
        "folder-beside/a": read_stamp(f"{bucket}/folder-beside/a", options)
    }
