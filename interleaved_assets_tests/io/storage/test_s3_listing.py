"""Listings of a bucket: every object is listed as it is now, or the listing fails."""

import pytest

from interleaved_assets.io.storage import files_below, list_stamps, open_input, read_stamp
from interleaved_assets.model.errors import OptionError, StorageError
from interleaved_assets.pipeline.raw.listing import list_raw_shards
from interleaved_assets.settings import StorageSettings
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.s3_gate import Refusal, s3_gate

NAMES = ["a&b", "d/1", "d/2", "é"]


@pytest.fixture
def folder(s3_server: S3Server, bucket: str) -> str:
    for name in NAMES:
        s3_server.fs.pipe(f"{bucket}/folder/{name}", name.encode())
    return f"{bucket}/folder"


def test_objects_that_stand_for_folders_are_no_files(s3_server: S3Server, folder: str) -> None:
    for name in ("", "d/", "empty/"):
        s3_server.fs.call_s3("put_object", Bucket=folder[5:].partition("/")[0], Key=f"folder/{name}", Body=b"")
    assert sorted(files_below(folder, s3_server.storage_options)) == NAMES
    assert files_below(f"{folder}/empty", s3_server.storage_options) == {}


def test_an_object_is_no_folder(s3_server: S3Server, folder: str) -> None:
    assert files_below(f"{folder}/d/1", s3_server.storage_options) == {}


def test_an_object_that_was_replaced_after_a_listing_is_read_as_it_is(s3_server: S3Server, folder: str) -> None:
    options = s3_server.storage_options
    before = list_stamps(folder, options)
    with s3_gate(s3_server) as another_client:
        another_client.fs.pipe(f"{folder}/d/1", b"replaced")
        another_client.fs.rm_file(f"{folder}/d/2")
    assert read_stamp(f"{folder}/d/1", options) not in (None, before["d/1"])
    assert read_stamp(f"{folder}/d/2", options) is None
    with open_input(f"{folder}/d/1", options) as file:
        assert file.read() == b"replaced"
    assert list_stamps(folder, options) == {
        "a&b": before["a&b"],
        "d/1": read_stamp(f"{folder}/d/1", options),
        "é": before["é"],
    }


def test_a_url_without_a_bucket(s3_server: S3Server) -> None:
    with pytest.raises(OptionError, match="the URL names no bucket: write s3://bucket/folder"):
        files_below("s3://", s3_server.storage_options)


def test_a_folder_that_may_not_be_listed_is_named(s3_server: S3Server, folder: str) -> None:
    with pytest.raises(StorageError, match=f"cannot list {folder}: "):
        files_below(folder, s3_server.reader_options)
    with pytest.raises(StorageError, match=r"cannot list s3://no-such-bucket/folder: .* Create the bucket"):
        files_below("s3://no-such-bucket/folder", s3_server.storage_options)


def test_an_error_with_the_status_200_is_not_an_empty_folder(s3_server: S3Server, folder: str) -> None:
    with s3_gate(s3_server) as gate:
        gate.refuses = lambda method, path: None if gate.refused else Refusal(200, "InternalError", "Try again.")
        assert list(list_stamps(folder, gate.storage_options)) == NAMES
        assert len(gate.refused) == 1


def test_a_listing_that_names_no_next_page_is_not_taken_for_a_whole_one(s3_server: S3Server, folder: str) -> None:
    with s3_gate(s3_server) as gate:
        gate.changes = lambda method, path, answer: answer.replace(b"<IsTruncated>false", b"<IsTruncated>true")
        with pytest.raises(StorageError, match=f"cannot list {folder}: "):
            files_below(folder, gate.storage_options)
        storage = StorageSettings(raw_root=folder, output_root=f"{folder}-out", options=gate.storage_options)
        with pytest.raises(StorageError, match=f"cannot list the raw shards below {folder}: "):
            list_raw_shards(storage)
