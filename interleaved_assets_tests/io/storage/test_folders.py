"""The files directly in a folder: listed, and removed where they are not wanted any more."""

from pathlib import Path

from interleaved_assets.io.storage import atomic_output, files_in, remove_others
from interleaved_assets.io.storage.temporary import random_name, target_name
from interleaved_assets_tests.s3 import S3Server

HEX = "0f" * 16
TEMPORARY = ("own-9", "own-2", "other")


def is_own(name: str) -> bool:
    return name.startswith("own-")


def fill(folder: Path) -> Path:
    for name in ("own-1", "own-2", "own-3", "other", "sub/own-1", *(f".{name}.{HEX}.tmp" for name in TEMPORARY)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x" * 3)
    return folder


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_files_of_a_local_folder(tmp_path: Path) -> None:
    assert files_in(str(tmp_path / "missing")) == {}
    before = names(fill(tmp_path))
    assert files_in(str(tmp_path)) == dict.fromkeys(sorted(before - {"sub/own-1"}), 3)
    assert files_in(str(tmp_path / "own-1")) == {}  # it is no folder


def test_others_and_what_dead_writers_left_go(tmp_path: Path) -> None:
    fill(tmp_path)
    with atomic_output(str(tmp_path / "own-4")) as output:
        output.write(b"of a live writer")
        assert remove_others(str(tmp_path), is_own, {"own-2"}) == ["own-1", "own-3"]
    assert names(tmp_path) == {"own-2", "own-4", "other", "sub/own-1", f".other.{HEX}.tmp"}
    assert remove_others(str(tmp_path / "missing"), is_own, ()) == []


def test_files_of_a_bucket(s3_server: S3Server, bucket: str) -> None:
    options = s3_server.storage_options
    for name in ("x/own-1", "x/own-2", "x/other", "x/sub/own-1", "x"):
        s3_server.fs.pipe_file(f"{bucket}/{name}", b"xyz")
    assert files_in(f"{bucket}/x", options) == {"other": 3, "own-1": 3, "own-2": 3}
    assert files_in(f"{bucket}/missing", options) == {}
    assert remove_others(f"{bucket}/x", is_own, {"own-2"}, options) == ["own-1"]
    s3_server.fs.invalidate_cache()
    left = {path.partition("/")[2] for path in s3_server.fs.find(bucket)}
    assert {"x/own-2", "x/other", "x/sub/own-1"} <= left
    assert "x/own-1" not in left


def test_the_file_that_a_temporary_one_becomes() -> None:
    assert target_name(random_name("a.tar")) == "a.tar"
    assert target_name("a.tar") is None
    assert target_name(".a.tar.x.tmp") is None
