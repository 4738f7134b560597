import hashlib
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash

from interleaved_assets.model.errors import StorageError
from interleaved_assets.pipeline.raw import listing
from interleaved_assets.pipeline.raw.listing import RawSource, find_raw_shard, list_raw_shards, raw_content_version
from interleaved_assets.pipeline.raw.snapshot import (
    SnapshotChanges,
    SnapshotEntry,
    compare_with_snapshot,
    read_snapshot,
    write_snapshot,
)
from interleaved_assets.settings import StorageSettings
from interleaved_assets_tests.system_calls import files_opened


@pytest.fixture
def storage(tmp_path: Path) -> StorageSettings:
    (tmp_path / "raw").mkdir()
    return StorageSettings(raw_root=str(tmp_path / "raw"), output_root=str(tmp_path / "out"))


def put(storage: StorageSettings, name: str, content: bytes, mtime: int) -> None:

    path = Path(storage.raw_root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (mtime, mtime))


def known(found: SnapshotChanges, before: dict[str, SnapshotEntry]) -> list[str]:
    """Keys of the shards whose version this look has determined."""
    return [
        key
        for key, entry in found.snapshot.items()
        if entry.version and (key not in before or entry.version != before[key].version)
    ]


def see(
    storage: StorageSettings, before: dict[str, SnapshotEntry], now: float, quiet: float = 0, at_most: int = 100
) -> SnapshotChanges:
    return compare_with_snapshot(
        list_raw_shards(storage), before, storage, now=now, quiet_seconds=quiet, at_most=at_most
    )


def test_listing_takes_shards_only_and_gives_keys_and_uris(storage: StorageSettings) -> None:
    for name in ("b/two.tar", "one.tar", "three.tar.gz", "notes.txt", ".hidden.tar"):
        put(storage, name, b"x", 1)
    found = list(list_raw_shards(storage))
    assert [shard.key for shard in found] == ["b/two", "one", "three"]
    assert found[0].uri == f"{storage.raw_root}/b/two.tar"
    assert find_raw_shard("b/two", storage) == found[0]
    put(storage, ".trash/two.tar", b"x", 1)
    with pytest.raises(StorageError, match="No file in a folder whose name begins with a dot is a shard"):
        find_raw_shard(".trash/two", storage)


def test_a_missing_raw_root_and_a_missing_shard_are_named(storage: StorageSettings) -> None:
    with pytest.raises(StorageError, match=r"nowhere does not exist: set storage\.raw_root"):
        list(list_raw_shards(storage.model_copy(update={"raw_root": "/nowhere"})))
    with pytest.raises(StorageError, match=r"\.py is a file and no folder of shards: set storage\.raw_root"):
        list(list_raw_shards(storage.model_copy(update={"raw_root": __file__})))
    with pytest.raises(StorageError, match=r"File name too long\."):  # it is not said to be missing
        list(list_raw_shards(storage.model_copy(update={"raw_root": f"/{'x' * 300}"})))
    with pytest.raises(StorageError, match=r"shard 'gone' is not below .*raw"):
        find_raw_shard("gone", storage)


def test_a_cut_key_is_found_by_listing(storage: StorageSettings) -> None:
    name = "/".join(["d" * 90] * 3) + "/shard.tar"
    put(storage, name, b"x", 1)
    (shard,) = list_raw_shards(storage)
    assert "~" in shard.key
    assert find_raw_shard(shard.key, storage) == shard


def test_new_then_unchanged_then_changed(storage: StorageSettings) -> None:
    put(storage, "a.tar", b"one", 1)
    first = see(storage, {}, now=100)
    assert (known(first, {}), first.growing) == (["a"], [])
    second = see(storage, first.snapshot, now=200)
    assert second.snapshot == first.snapshot
    put(storage, "a.tar", b"two", 2)
    third = see(storage, second.snapshot, now=300)
    assert known(third, second.snapshot) == ["a"]


def test_the_same_content_under_a_new_time_has_the_same_version(storage: StorageSettings) -> None:
    put(storage, "a.tar", b"one", 1)
    first = see(storage, {}, now=100)
    put(storage, "a.tar", b"one", 2)
    second = see(storage, first.snapshot, now=200)
    assert known(second, first.snapshot) == []
    assert second.snapshot["a"].since == 200


def test_a_growing_shard_waits_until_it_is_quiet_by_our_own_clock(storage: StorageSettings) -> None:
    put(storage, "a.tar", b"o", mtime=0)  # a storage clock that is far behind changes nothing
    first = see(storage, {}, now=1000, quiet=60)
    assert (known(first, {}), first.growing) == ([], ["a"])
    put(storage, "a.tar", b"on", mtime=0)
    second = see(storage, first.snapshot, now=1070, quiet=60)
    assert (known(second, first.snapshot), second.growing) == ([], ["a"])
    third = see(storage, second.snapshot, now=1129, quiet=60)
    assert third.growing == ["a"]
    assert known(see(storage, third.snapshot, now=1130, quiet=60), third.snapshot) == ["a"]


def test_a_vanished_shard_leaves_no_entry(storage: StorageSettings) -> None:
    put(storage, "a.tar", b"one", 1)
    first = see(storage, {}, now=100)
    Path(storage.raw_root, "a.tar").unlink()
    assert see(storage, first.snapshot, now=200).snapshot == {}


def test_absent_shards_keep_their_entries_if_a_folder_cannot_be_listed(storage: StorageSettings) -> None:
    put(storage, "a.tar", b"one", 1)
    first = see(storage, {}, now=100)
    found = compare_with_snapshot([], first.snapshot, storage, now=200, quiet_seconds=0, at_most=1, is_whole=False)
    assert found.snapshot == first.snapshot


def test_the_number_of_shards_that_are_read_is_limited(storage: StorageSettings) -> None:
    for number in range(5):
        put(storage, f"{number}.tar", bytes([number]), 1)
    read, snapshot = [], dict[str, SnapshotEntry]()
    for tick in range(3):
        found = see(storage, snapshot, now=100 + tick, at_most=2)
        read.append(known(found, snapshot))
        snapshot = found.snapshot
    assert read == [["0", "1"], ["2", "3"], ["4"]]


def test_after_the_time_limit_one_shard_is_read_and_the_others_are_left(storage: StorageSettings) -> None:
    for number in range(3):
        put(storage, f"{number}.tar", bytes([number]), 1)
    snapshot: dict[str, SnapshotEntry] = {}
    read = []
    for tick in range(4):
        found = compare_with_snapshot(
            list_raw_shards(storage), snapshot, storage, now=100 + tick, quiet_seconds=0, at_most=100, until=0.0
        )
        read.append((known(found, snapshot), found.left))
        snapshot = found.snapshot
    assert read == [(["0"], ["1", "2"]), (["1"], ["2"]), (["2"], []), ([], [])]


def test_no_shard_waits_after_the_clock_was_set_back(storage: StorageSettings) -> None:
    put(storage, "a.tar", b"one", 1)
    first = see(storage, {}, now=10_000, quiet=60)
    second = see(storage, first.snapshot, now=500, quiet=60)
    assert second.growing == ["a"]
    assert known(see(storage, second.snapshot, now=560, quiet=60), second.snapshot) == ["a"]


def test_what_is_handled_counts_only_under_the_cursor_of_its_tick(storage: StorageSettings) -> None:
    put(storage, "a.tar", b"one", 1)
    put(storage, "ü,b.tar", b"two", 1)
    seen = see(storage, {}, now=100).snapshot
    first = seen | {"a": seen["a"]._replace(handled=seen["a"].version)}
    cursor = write_snapshot(first, {}, storage, None)
    assert read_snapshot(storage, cursor) == first
    both = {key: entry._replace(handled=entry.version) for key, entry in first.items()}
    failed = write_snapshot(both, first, storage, cursor)
    assert read_snapshot(storage, cursor) == first  # the tick that wrote it has not ended with its cursor
    assert read_snapshot(storage, failed) == both
    assert read_snapshot(storage, None) == seen  # after a reset of the cursor
    restored = read_snapshot(storage, "of a backup")
    assert restored == {key: entry._replace(since=math.inf) for key, entry in seen.items()}
    now = {key: entry._replace(since=300) for key, entry in seen.items()}
    assert see(storage, restored, now=300).snapshot == now
    unlisted = compare_with_snapshot([], restored, storage, now=300, quiet_seconds=0, at_most=9, is_whole=False)
    assert unlisted.snapshot == now  # else the next tick would look like the first after a backup


def test_a_known_stamp_is_not_hashed_again(storage: StorageSettings) -> None:
    put(storage, "a.tar", b"one", 1)
    source = see(storage, {}, now=100).snapshot["a"].source
    with files_opened(".tar") as opened:
        assert raw_content_version(find_raw_shard("a", storage), storage, source) == source.version
    assert opened == []


def written_in_place(tar: Path) -> None:
    tar.write_bytes(b"two")


def replaced(tar: Path) -> None:
    tar.with_name("other").write_bytes(b"two")
    tar.with_name("other").replace(tar)


@pytest.mark.parametrize("replace", [written_in_place, replaced])
def test_another_content_of_the_same_size_and_time_is_seen(
    storage: StorageSettings, replace: Callable[[Path], None]
) -> None:
    put(storage, "a.tar", b"one", 1)
    first = see(storage, {}, now=100).snapshot
    time.sleep(0.02)  # the clock of a file system ticks every few milliseconds
    replace(Path(storage.raw_root, "a.tar"))
    os.utime(Path(storage.raw_root, "a.tar"), (1, 1))
    source = first["a"].source
    assert raw_content_version(find_raw_shard("a", storage), storage, source) != source.version
    assert known(see(storage, first, now=200), first) == ["a"]


@pytest.mark.parametrize("version", ["xxh3", "sha256"])
def test_a_stamp_of_an_older_version_is_hashed_once_and_its_record_stays_valid(
    storage: StorageSettings, version: str
) -> None:
    put(storage, "a.tar", b"one", 1)
    shard = find_raw_shard("a", storage)
    content = {"xxh3": xxhash.xxh3_128(b"one"), "sha256": hashlib.sha256(b"one")}[version].hexdigest()
    old = RawSource(uri=shard.uri, size=3, stamp="modified:1.0", version=f"{version}:{content}")
    assert raw_content_version(shard, storage, old) == old.version
    assert listing.seems_same(old.stamp, shard.stamp)
    assert not listing.seems_same("modified:2.0", shard.stamp)


def test_a_changed_mode_makes_no_shard_look_changed(storage: StorageSettings) -> None:
    put(storage, "a.tar", b"one", 1)
    before = find_raw_shard("a", storage)
    time.sleep(0.02)
    Path(storage.raw_root, "a.tar").chmod(0o600)
    now = find_raw_shard("a", storage)
    assert now.stamp != before.stamp
    assert listing.seems_same(before.stamp, now.stamp)


def test_a_file_that_cannot_be_read_does_not_delay_the_others(storage: StorageSettings) -> None:
    put(storage, "a.tar", b"one", 1)
    Path(storage.raw_root, "b.tar").symlink_to(Path(storage.raw_root, "nowhere"))
    put(storage, "c.tar", b"two", 1)
    found = see(storage, {}, now=100)
    assert known(found, {}) == ["a", "c"]
    assert list(found.unreadable) == ["b"]
    assert known(see(storage, found.snapshot, now=200), found.snapshot) == []
