"""Which files are shards, and finding them by their keys, also by keys that were cut."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interleaved_assets.io.storage import atomic_output, open_input
from interleaved_assets.model.errors import NoSuchShard, StorageError
from interleaved_assets.pipeline.raw.keys import is_cut, shard_key
from interleaved_assets.pipeline.raw.listing import (
    RawShard,
    RawSource,
    find_raw_shard,
    just_written,
    list_raw_files,
    list_raw_shards,
    raw_shard_again,
)
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import RAW_SHARDS, OutputFile
from interleaved_assets.pipeline.run.stage import ShardTask, Stage, Work
from interleaved_assets.settings import Settings, StorageSettings
from interleaved_assets_tests.documents import refuse_listing
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.system_calls import system_calls

FOLDERS = "/".join(["d" * 90] * 3)


@pytest.fixture
def storage(settings: Settings) -> StorageSettings:
    return settings.storage


@pytest.fixture
def listings(storage: StorageSettings) -> Iterator[list[str]]:
    """Each raw root that was listed."""
    listed: list[str] = []

    def see(event: str, path: str) -> None:
        if event in ("os.listdir", "os.scandir") and path.rstrip("/") == storage.raw_root:
            listed.append(storage.raw_root)

    with system_calls(see):
        yield listed


def put(storage: StorageSettings, name: str, content: bytes = b"x") -> str:
    """Write a shard with a long name; returns its key."""
    path = Path(storage.raw_root, FOLDERS, f"{name}.tar")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    key = shard_key(f"{FOLDERS}/{name}.tar")
    assert is_cut(key)
    return key


def test_shards_by_their_endings_and_the_files_that_are_ignored(storage: StorageSettings) -> None:
    root = Path(storage.raw_root)
    shards = ("a/one.tar", "four.TGZ", "three.TAR", "two.tar.gz", "z.tar.gz")
    ignored = (
        ".in/notes.txt",
        "a/notes.txt",
        "five.tar.bz2",
        "z.TAR",
        "z.tgz",
    )  # z.tar.gz comes before z.tgz and z.TAR
    for name in (*shards, *ignored, ".hidden.tar", "a/.DS_Store"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    found = list_raw_files(storage)
    assert [shard.uri for shard in found.shards] == [f"{root}/{name}" for name in shards]
    assert [shard.key for shard in found.shards] == ["a/one", "four", "three", "two", "z"]
    assert found.ignored == list(ignored)
    assert [find_raw_shard(shard.key, storage) for shard in found.shards] == list(found.shards)


NO_KEYS = [
    "../x",
    "%2E%2E/x",
    "../raw/a",
    "./a",
    "%2E/a",
    "a/../a",
    "deep/../a",
    "deep//b",
    "deep/%2Fb",
    "deep%2Fb",
    "/a",
    "%2Fa",
    "%61",
    "a ",
    "deep/",
    "",
]
"""Texts that lead to the files of :func:`test_a_file_has_one_key`, or elsewhere, and are no keys of them."""


def test_a_file_has_one_key(storage: StorageSettings, tmp_path: Path) -> None:
    for path in (tmp_path / "x.tar", *(Path(storage.raw_root, name) for name in ("a.tar", "deep/b.tar", "a .tar"))):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"1")
    assert [find_raw_shard(key, storage).key for key in ("a", "deep/b", "a%20")] == ["a", "deep/b", "a%20"]
    for text in (*NO_KEYS, str(tmp_path / "raw/a"), str(tmp_path / "x")):
        with pytest.raises(NoSuchShard):
            find_raw_shard(text, storage)


def test_a_bundle_has_one_key(storage: StorageSettings) -> None:
    storage = storage.model_copy(update={"bundles": {"images": 1}})
    Path(storage.raw_root, "deep").mkdir()
    Path(storage.raw_root, "deep/a.png").write_bytes(b"1")
    assert [raw.key for raw in list_raw_shards(storage)] == ["deep/images-0-of-1"]
    assert find_raw_shard("deep/images-0-of-1", storage).size == 1
    for text in ("./deep/images-0-of-1", "deep//images-0-of-1", "deep%2Fimages-0-of-1"):
        with pytest.raises(NoSuchShard):
            find_raw_shard(text, storage)


def test_objects_with_dotted_and_empty_folders_in_their_names_are_found(
    settings: Settings, s3_server: S3Server, bucket: str
) -> None:
    storage = settings.storage.model_copy(update={"raw_root": f"{bucket}/raw", "options": s3_server.storage_options})
    s3_server.fs.pipe_file(f"{bucket}/raw/a//b.tar", b"1")
    assert [find_raw_shard(raw.key, storage) == raw for raw in list_raw_shards(storage)] == [True]
    assert find_raw_shard("a/%2Fb", storage).uri == f"{bucket}/raw/a//b.tar"


def test_a_folder_with_the_name_of_a_shard_is_none(storage: StorageSettings) -> None:
    Path(storage.raw_root, "a.tar").mkdir(parents=True)
    packed = Path(storage.raw_root, "a.tar.gz")
    packed.write_bytes(b"1")
    assert [shard.uri for shard in list_raw_shards(storage)] == [find_raw_shard("a", storage).uri] == [str(packed)]


def test_a_folder_that_cannot_be_listed_is_named_in_utf8(
    storage: StorageSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.fsdecode(b"\xff")
    Path(storage.raw_root, folder).mkdir(parents=True)
    Path(storage.raw_root, "a.tar").touch()
    refuse_listing(monkeypatch, Path(storage.raw_root, folder))
    found = list_raw_files(storage)
    assert [shard.key for shard in found.shards] == ["a"]
    assert found.problem.encode().startswith(f"cannot list {storage.raw_root}/\\udcff: Permission".encode())


def test_a_link_has_the_stamp_of_its_file_in_a_listing_too(storage: StorageSettings, tmp_path: Path) -> None:
    file = tmp_path / "elsewhere"
    file.write_bytes(b"1")
    Path(storage.raw_root).mkdir(exist_ok=True)
    Path(storage.raw_root, "a.tar").symlink_to(file)
    (before,) = list_raw_shards(storage)
    os.utime(file, (1e9, 1e9))
    (after,) = list_raw_shards(storage)
    assert before != after == find_raw_shard("a", storage)


def test_a_shard_that_is_unpacked_keeps_its_key(storage: StorageSettings) -> None:
    packed, plain = Path(storage.raw_root, "one.tar.gz"), Path(storage.raw_root, "one.tar")
    for path in (packed, plain):
        path.write_bytes(b"x")
        assert [shard.uri for shard in list_raw_shards(storage)] == [str(path)]
        assert find_raw_shard("one", storage).uri == str(path)
    plain.unlink()
    assert find_raw_shard("one", storage).uri == str(packed)


def test_one_listing_is_enough_for_all_cut_keys(storage: StorageSettings, listings: list[str]) -> None:
    keys = [put(storage, str(number), b"x" * number) for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda key: find_raw_shard(key, storage), keys))
    assert listings == [storage.raw_root]
    assert [(raw.key, raw.size) for raw in found] == list(zip(keys, range(40), strict=True))
    assert sorted(found) == sorted(list_raw_shards(storage))


def test_a_found_shard_has_its_present_stamp(storage: StorageSettings, listings: list[str]) -> None:
    key = put(storage, "one", b"first")
    before = find_raw_shard(key, storage)
    put(storage, "one", b"another")
    assert (before.size, find_raw_shard(key, storage).size) == (5, 7)
    Path(before.uri).unlink()
    for look in (lambda: find_raw_shard(key, storage), lambda: raw_shard_again(before, storage)):
        with pytest.raises(StorageError, match=r"shard 'd.*' is not below .*: it was moved or deleted"):
            look()
    assert listings == [storage.raw_root]


def test_a_shard_that_landed_later_needs_another_listing(storage: StorageSettings, listings: list[str]) -> None:
    find_raw_shard(put(storage, "one"), storage)
    late = put(storage, "late", b"late")
    assert find_raw_shard(late, storage).size == 4
    assert len(listings) == 2
    with pytest.raises(StorageError, match="is not below"):
        find_raw_shard(shard_key(f"{FOLDERS}/gone.tar"), storage)
    assert len(listings) == 3


def test_a_shard_whose_path_is_in_its_record_needs_no_listing(storage: StorageSettings, listings: list[str]) -> None:
    key, other = put(storage, "one"), put(storage, "other", b"other")
    known = RawSource(uri=f"{storage.raw_root}/{FOLDERS}/one.tar", size=1, stamp="", version="")
    assert find_raw_shard(key, storage, known).uri == known.uri
    assert listings == []
    # nor is a record believed that is of another shard, or of another raw root
    for wrong in (known, known.model_copy(update={"uri": f"/elsewhere/{FOLDERS}/other.tar"})):
        assert find_raw_shard(other, storage, wrong).size == 5
    assert listings == [storage.raw_root]


def test_shards_with_cut_keys_go_through_a_stage_with_one_listing(settings: Settings, listings: list[str]) -> None:
    def copy(shard: ShardTask) -> Work:
        assert shard.raw is not None
        with open_input(shard.raw.uri) as file, atomic_output(shard.paths.output("one")) as out:
            out.write(file.read())
        return Work(outputs={"rows": OutputFile.of(out)})

    stage = Stage("one", (RAW_SHARDS,), 1, lambda settings: {}, copy)
    keys = [put(settings.storage, str(number)) for number in range(3)]
    for unchanged in (False, True):
        assert [take_through(stage, key, settings).unchanged for key in keys] == [unchanged] * 3
    assert len(listings) == 1


def test_a_shard_in_a_bucket_is_as_it_is_now_whatever_was_listed(
    settings: Settings, s3_server: S3Server, bucket: str
) -> None:
    storage = settings.storage.model_copy(update={"raw_root": f"{bucket}/raw", "options": s3_server.storage_options})
    key, uri = shard_key(f"{FOLDERS}/one.tar"), f"{bucket}/raw/{FOLDERS}/one.tar"
    stamps = []
    for content in (b"first", b"another"):
        s3_server.fs.pipe_file(uri, content)
        found = find_raw_shard(key, storage)
        assert (found.key, found.uri, found.size) == (key, uri, len(content))
        assert found == raw_shard_again(found, storage)
        stamps.append(found.stamp)
        s3_server.fs.find(f"{bucket}/raw", detail=True)  # fills the cache of listings
    assert len(set(stamps)) == 2
    s3_server.fs.rm_file(uri)
    with pytest.raises(StorageError, match="is not below"):
        find_raw_shard(key, storage)


def test_a_link_has_the_stamp_of_its_file_in_a_listing_and_alone(storage: StorageSettings, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"x")
    os.utime(tmp_path / "elsewhere", (1, 1))
    Path(storage.raw_root, "linked.tar").symlink_to(tmp_path / "elsewhere")
    (listed,) = list_raw_shards(storage)
    assert listed == find_raw_shard("linked", storage)
    os.utime(tmp_path / "elsewhere", (2, 2))
    assert next(iter(list_raw_shards(storage))).stamp != listed.stamp


@pytest.mark.parametrize(
    ("age", "written"),
    # a negative age: the clock of this machine is behind that of the file server
    [(0, True), (50, True), (70, False), (3600, False), (-30, True), (-50, True), (-70, False), (-86_400, False)],
)
def test_a_file_of_the_last_seconds_may_still_be_growing(age: float, written: bool) -> None:
    landed = time.time() - age
    shard = RawShard("a", "raw/a.tar", 1, f"modified:{landed}", landed=landed)
    assert just_written(shard, 60) is written
    assert not just_written(shard, 0)


@pytest.mark.parametrize(("stamp", "has_time"), [("etag:abc-1", True), ("modified:None", False)])
def test_objects_and_files_without_a_time_are_not_just_written(stamp: str, has_time: bool) -> None:
    landed = time.time() if has_time else None
    assert not just_written(RawShard("a", "s3://raw/a.tar", 1, stamp, landed=landed), 60)
