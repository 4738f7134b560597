"""Files that are created only where none exists."""

import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest

from interleaved_assets.io.storage import create_file, read_small
from interleaved_assets.model.errors import StorageError
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.system_calls import failing, system_calls


@pytest.fixture(params=["local", "s3", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "local":
        yield str(tmp_path)
    elif request.param == "s3":
        request.getfixturevalue("s3_environment")
        yield request.getfixturevalue("bucket")
    else:
        yield "memory://create"
        fsspec.filesystem("memory").rm("/create", recursive=True)


def test_a_file_is_created_once_and_then_stays(folder: str) -> None:
    uri = f"{folder}/deep/a.json"
    assert create_file(uri, b"first")
    assert not create_file(uri, b"second")
    assert read_small(uri) == b"first"


@pytest.mark.parametrize("place", ["local", "s3"])
def test_of_many_writers_one_creates_the_file(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    uri = f"{tmp_path}/a"
    if place == "s3":
        request.getfixturevalue("s3_environment")
        uri = f"{request.getfixturevalue('bucket')}/a"
    with ThreadPoolExecutor(8) as writers:
        created = [*writers.map(lambda number: create_file(uri, b"%d" % number), range(8))]
    assert created.count(True) == 1
    assert read_small(uri) == b"%d" % created.index(True)
    assert [*tmp_path.glob(".*")] == []


@pytest.mark.parametrize("are_unnamed", [True, False])
def test_a_file_that_appears_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, are_unnamed: bool
) -> None:
    if not are_unnamed:
        monkeypatch.delattr(os, "O_TMPFILE")
    file = tmp_path / "a"

    def see(event: str, path: str) -> None:
        if event == "os.link":
            file.write_bytes(b"of another process")

    with system_calls(see):
        assert not create_file(str(file), b"own")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"of another process"}


def test_a_larger_object_than_one_request_takes_is_created_once(
    bucket: str, s3_environment: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s3fs.S3FileSystem._pipe_file.__defaults__", (5 * 2**20, None, "overwrite"))
    assert create_file(f"{bucket}/a", bytes(11 * 2**20))
    assert not create_file(f"{bucket}/a", b"1" * 11 * 2**20)
    assert s3_environment.fs.cat(f"{bucket}/a") == bytes(11 * 2**20)


def test_where_files_cannot_be_linked_the_file_is_created_by_a_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE")
    with failing("os.link", "/a", OSError(errno.EPERM, os.strerror(errno.EPERM))):
        assert create_file(f"{tmp_path}/a", b"first")
    assert not create_file(f"{tmp_path}/a", b"second")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"first"}


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, s3_server: S3Server) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=f"cannot write {tmp_path}/file/a"):
        create_file(f"{tmp_path}/file/a", b"")
    with pytest.raises(StorageError, match=r"cannot write s3://shared/a: .*Grant access"):
        create_file("s3://shared/a", b"", s3_server.reader_options)
    with pytest.raises(StorageError, match="Create the bucket"):
        create_file("s3://no-such-bucket/a", b"", s3_server.storage_options)
