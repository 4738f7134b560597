"""Atomic output on a local disk, on S3 and on other filesystems."""

import gc
import os
from collections.abc import Callable
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest
import xxhash

from interleaved_assets.io.storage.atomic import atomic_output
from interleaved_assets.io.storage.stamps import read_stamp
from interleaved_assets.model.errors import StorageError
from interleaved_assets_tests.elsewhere import elsewhere
from interleaved_assets_tests.s3 import S3Server

PART = 16 * 2**20  # of a multipart upload
# more than one part
LARGE = np.random.default_rng(0).bytes(PART + 2**20)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.fixture(params=["local", "s3", "memory"])
def place(request: pytest.FixtureRequest) -> tuple[str, dict, Callable[[], list[str]]]:
    """A folder, the options to reach it, and what lists all that is in it."""
    if request.param == "local":
        folder = request.getfixturevalue("tmp_path") / "out"
        return str(folder), {}, lambda: names(folder)
    if request.param == "memory":
        fs = fsspec.filesystem("memory")
        folder = f"/{request.node.name}"
        return f"memory:/{folder}", {}, lambda: [path.rpartition("/")[2] for path in fs.find(folder)]
    server: S3Server = request.getfixturevalue("s3_server")
    url = request.getfixturevalue("bucket")

    def everything() -> list[str]:
        uploads = server.fs.call_s3("list_multipart_uploads", Bucket=url.removeprefix("s3://")).get("Uploads", [])
        server.fs.invalidate_cache()
        return [path.rpartition("/")[2] for path in server.fs.find(url)] + [item["Key"] for item in uploads]

    return url, server.storage_options, everything


def write_and_raise(uri: str, options: dict, data: bytes, error: BaseException, *, stored: bool = False) -> None:
    with atomic_output(uri, options) as output:
        output.write(data)
        if stored:
            output.store()
        raise error


def test_committed_output_has_content_size_and_hash(place) -> None:
    folder, options, _ = place
    parts = [b"head", memoryview(LARGE), bytearray(b"tail"), np.frombuffer(b"1234", np.uint32).data]
    whole = b"head" + LARGE + b"tail1234"
    with atomic_output(f"{folder}/sub/a.bin", options) as output:
        assert sum(output.write(part) for part in parts) == output.tell() == len(whole)
        assert output.checksum is None
    assert (output.size, output.checksum) == (len(whole), xxhash.xxh3_128_hexdigest(whole))
    with fsspec.open(f"{folder}/sub/a.bin", **options) as file:
        assert file.read() == whole


@pytest.mark.parametrize("content", [b"small", LARGE], ids=["small", "large"])
def test_stored_output_appears_at_the_end_of_the_block(place, content: bytes) -> None:
    folder, options, everything = place
    with atomic_output(f"{folder}/a.bin", options) as output:
        output.write(content)
        output.store()
        assert not fsspec.filesystem(folder.partition(":")[0] if ":" in folder else "file", **options).exists(
            f"{folder}/a.bin"
        )
    assert (output.size, output.checksum) == (len(content), xxhash.xxh3_128_hexdigest(content))
    assert output.stamp in (read_stamp(f"{folder}/a.bin", options), None)
    assert output.stamp is not None or folder.startswith("memory")
    with fsspec.open(f"{folder}/a.bin", **options) as file:
        assert file.read() == content
    assert everything() == ["a.bin"]
    with pytest.raises(ValueError, match="ended"):
        write_and_raise(f"{folder}/b.bin", options, content, ValueError("ended"), stored=True)
    assert everything() == ["a.bin"]


def test_small_and_empty_files(place) -> None:
    folder, options, everything = place
    with atomic_output(f"{folder}/a.bin", options) as output:
        pass
    with atomic_output(f"{folder}/b.bin", options) as other:
        other.write(b"b")
    assert (output.size, output.checksum) == (0, xxhash.xxh3_128_hexdigest(b""))
    assert (other.size, other.checksum) == (1, xxhash.xxh3_128_hexdigest(b"b"))
    assert everything() == ["a.bin", "b.bin"]


@pytest.mark.parametrize("data", [b"a few bytes", LARGE], ids=["small", "large"])
def test_an_exception_leaves_no_file(place, data: bytes) -> None:
    folder, options, everything = place
    with pytest.raises(KeyError, match="in between"):
        write_and_raise(f"{folder}/a.bin", options, data, KeyError("in between"))
    gc.collect()  # nor once the file object is gone
    assert everything() == []


def test_an_exception_keeps_the_existing_file(place) -> None:
    folder, options, everything = place
    with atomic_output(f"{folder}/a.bin", options) as output:
        output.write(b"old")
    with pytest.raises(KeyboardInterrupt):
        write_and_raise(f"{folder}/a.bin", options, LARGE, KeyboardInterrupt())
    assert everything() == ["a.bin"]
    with fsspec.open(f"{folder}/a.bin", **options) as file:
        assert file.read() == b"old"
    with atomic_output(f"{folder}/a.bin", options) as output:
        output.write(b"new")
    with fsspec.open(f"{folder}/a.bin", **options) as file:
        assert file.read() == b"new"


def test_arrow_can_write_to_an_atomic_output(tmp_path: Path) -> None:
    table = pa.table({"a": range(1000)})
    with atomic_output(str(tmp_path / "a.arrow")) as output, pa.ipc.new_file(output, table.schema) as writer:
        writer.write_table(table)
    assert pa.ipc.open_file(tmp_path / "a.arrow").read_all() == table


def test_a_long_name_still_fits_its_temporary_one(tmp_path: Path) -> None:
    name = "ü" * 120 + ".bin"
    with atomic_output(str(tmp_path / name)) as output:
        output.write(b"1")
    assert names(tmp_path) == [name]


def test_a_local_file_gets_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    with atomic_output(str(tmp_path / "a.bin")):
        pass
    assert (tmp_path / "a.bin").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(StorageError, match=r"/file/a\.bin: File exists\. A file exists where a folder is needed"),
        atomic_output(str(tmp_path / "file" / "a.bin")),
    ):
        pass
    (tmp_path / "folder.bin").mkdir()
    with (
        pytest.raises(StorageError, match=r"cannot write .*/folder\.bin: Is a directory"),
        atomic_output(str(tmp_path / "folder.bin")) as output,
    ):
        output.write(b"1")
    assert names(tmp_path) == ["file", "folder.bin"]


@pytest.mark.parametrize("kind", ["link", "loop", "pipe"])
def test_only_regular_files_are_replaced(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "a.bin"
    (tmp_path / "other").write_bytes(b"mine")
    if kind == "pipe":
        os.mkfifo(target)
    else:
        target.symlink_to("other" if kind == "link" else "a.bin")
    before = target.lstat()
    with (
        pytest.raises(StorageError, match=r"cannot write .*/a\.bin: it is a symbolic link, a FIFO"),
        atomic_output(str(target)) as output,
    ):
        output.write(b"1")
    assert (target.lstat().st_ino, target.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert (tmp_path / "other").read_bytes() == b"mine"
    assert names(tmp_path) == ["a.bin", "other"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_full_disk(descriptor: int, mode: str, buffering: int = -1):
        os.close(descriptor)
        return open("/dev/full", mode, buffering)  # noqa: PTH123 - os.fdopen is what this stands in for

    monkeypatch.setattr(os, "fdopen", on_full_disk)
    with (
        pytest.raises(StorageError, match=r"a\.bin: No space left on device\. Free some space"),
        atomic_output(str(tmp_path / "a.bin")) as output,
    ):
        output.write(b"fits into the buffer")
    assert names(tmp_path) == []


def test_a_failed_cleanup_is_logged_and_keeps_the_first_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.delattr(os, "O_TMPFILE")
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(KeyError, match="the cause"):
        write_and_raise(str(tmp_path / "a.bin"), {}, b"1", KeyError("the cause"))
    assert f"cannot clean up after {tmp_path}/a.bin: Permission denied" in caplog.text


def test_s3_without_permission_and_without_bucket(s3_server: S3Server, bucket: str) -> None:
    with (
        pytest.raises(StorageError, match=r"cannot write s3://shared/a\.bin: .* Grant access"),
        atomic_output("s3://shared/a.bin", s3_server.reader_options) as output,
    ):
        output.write(b"1")
    with (
        pytest.raises(StorageError, match=r"cannot write s3://no-such-bucket/a\.bin: "),
        atomic_output("s3://no-such-bucket/a.bin", s3_server.storage_options) as output,
    ):
        output.write(LARGE)
    assert not s3_server.fs.exists("shared/a.bin")


def write(path: Path, content: bytes) -> None:
    with atomic_output(str(path)) as output:
        output.write(content)


def lose_to_removal(uri: str, folder: Path) -> None:
    with atomic_output(uri) as output:
        output.write(b"1")
        for path in folder.glob(".*.tmp"):
            path.unlink()


def test_a_writer_whose_temporary_file_is_removed_fails(tmp_path: Path) -> None:
    write(tmp_path / "a.bin", b"old")
    with pytest.raises(StorageError, match=r"cannot write elsewhere://.*a\.bin: No such file"):
        lose_to_removal(elsewhere(tmp_path / "a.bin"), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == b"old"
    assert names(tmp_path) == ["a.bin"]
