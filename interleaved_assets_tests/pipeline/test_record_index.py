"""The index of records in a bucket: whatever it says, the records that a look finds are those that are there."""

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.storage import atomic_output, read_small, remove_file
from interleaved_assets.pipeline.raw.listing import RawShard
from interleaved_assets.pipeline.record import OutputFile, Record, content_stamp, write_record
from interleaved_assets.pipeline.record_index import RecordIndex
from interleaved_assets.pipeline.status import shard_statuses
from interleaved_assets.pipeline.stored_records import ListedRecords, list_records, read_valid_records
from interleaved_assets.settings import Settings, StorageSettings, load_settings
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.s3_requests import counted_requests

STAGE = "image_scores"
KEYS = [f"web/{number:02}" for number in range(12)]


@pytest.fixture
def settings(tmp_path: Path, bucket: str, s3_environment: S3Server) -> Settings:
    (tmp_path / "interleaved.toml").write_text(f'[storage]\nraw_root = "{bucket}/raw"\noutput_root = "{bucket}/out"\n')
    return load_settings(tmp_path / "interleaved.toml")


@pytest.fixture
def storage(settings: Settings) -> StorageSettings:
    """Shards with an output and a record at one stage."""
    for key in KEYS:
        make(settings.storage, key)
    return settings.storage


def make(storage: StorageSettings, key: str, work: str = "first") -> None:
    paths = storage.shard(key)
    with atomic_output(paths.output(STAGE), storage.options) as out:
        out.write(f"{key} {work}".encode())
    version = hashlib.sha256(work.encode()).hexdigest()
    outputs = {"rows": OutputFile.of(out)}
    record = Record(
        stage=STAGE, shard=key, code_version="1", inputs={}, data_version=version, outputs=outputs, settings={}
    )
    write_record(record, paths.record(STAGE), storage.options)


def index_uri(storage: StorageSettings) -> str:
    return f"{storage.output_root}/state/records/{STAGE}.parquet"


def look(storage: StorageSettings) -> tuple[ListedRecords, int]:
    """A look at all shards, which finds what is there, and the number of records that it read one by one."""
    listed = list_records(storage, [STAGE])
    assert listed is not None
    with counted_requests() as requests:
        known = {key: listed.known_valid(storage.shard(key), [STAGE]) for key in KEYS}
    assert requests == []
    with counted_requests() as requests:
        found = {key: listed.read_valid(storage.shard(key), [STAGE]) for key in KEYS}
    assert {key for key in KEYS if known[key] not in (None, found[key])} == set()
    assert found == {key: read_valid_records(storage.shard(key), [STAGE]) for key in KEYS}
    assert set(listed.recorded_stages()) >= {key for key, records in found.items() if records}
    return listed, sum(request.endswith(".json") and request.startswith("GET") for request in requests)


def test_it_is_made_from_the_records_and_then_no_record_is_read(storage: StorageSettings) -> None:
    listed, read = look(storage)
    assert read == len(KEYS)
    listed.save_indexes()
    listed, read = look(storage)
    assert read == 0
    with counted_requests() as requests:
        listed.save_indexes()  # it lacks nothing, and is not written
    assert requests == []
    remove_file(index_uri(storage), storage.options)
    assert look(storage)[1] == len(KEYS)


def test_what_the_index_has_is_known_without_a_request(storage: StorageSettings) -> None:
    def known() -> list[str]:
        listed = list_records(storage, [STAGE])
        assert listed is not None
        return [key for key in KEYS if listed.known_valid(storage.shard(key), [STAGE]) is not None]

    assert known() == []
    look(storage)[0].save_indexes()
    assert known() == KEYS
    make(storage, KEYS[0], "second")
    remove_file(storage.shard(KEYS[1]).output(STAGE), storage.options)  # the storage is asked whether it is gone
    remove_file(storage.shard(KEYS[2]).record(STAGE), storage.options)  # the listing shows that there is none
    assert known() == KEYS[2:]


def test_statuses_are_the_same_with_the_index(storage: StorageSettings, settings: Settings) -> None:
    with atomic_output(storage.shard(KEYS[1]).record(STAGE), storage.options) as out:
        out.write(b'{"stage": 1}')
    remove_file(storage.shard(KEYS[2]).record(STAGE), storage.options)
    remove_file(storage.shard(KEYS[3]).output(STAGE), storage.options)
    raws = [RawShard(key, f"{storage.raw_root}/{key}.tar", 1, "etag:0-1") for key in KEYS]
    found = []
    for _ in range(2):
        with counted_requests() as requests:
            found.append(list(shard_statuses(raws, settings, {}, all_shards=True)))
        read = sum(request.endswith(f"{STAGE}/{key}.json") for request in requests for key in KEYS)
    assert read == 0
    assert found[0] == found[1]
    assert [status.text.partition(":")[0] for _, status in found[1] if status] == [
        "no normalized",
        "unreadable",
        *["never materialized"] * 2,
        *["no normalized"] * 8,
    ]


def forged(storage: StorageSettings) -> bytes:
    """Of every shard the content of another record, beside the stamp of its own."""
    index = RecordIndex(index_uri(storage), storage.options)
    stamps = list_records(storage, [STAGE])
    assert stamps is not None
    other = read_small(storage.shard(KEYS[0]).record(STAGE), storage.options)
    assert other is not None
    for key in KEYS[1:]:
        index.add(key, str(stamps.stamp_at(storage.shard(key).record(STAGE))), other, by_stamp=False)
    index.save({key: str(stamps.stamp_at(storage.shard(key).record(STAGE))) for key in KEYS})
    return b""


def cut(storage: StorageSettings) -> bytes:
    return (read_small(index_uri(storage), storage.options) or b"")[:-9]


def flipped(storage: StorageSettings) -> bytes:
    content = bytearray(read_small(index_uri(storage), storage.options) or b"")
    content[len(content) // 4] ^= 1
    return bytes(content)


def another_table(storage: StorageSettings) -> bytes:
    with parquet_shard(index_uri(storage), pa.schema({"key": pa.string()}), storage_options=storage.options) as out:
        out.write(pa.table({"key": ["a"]}))
    return b""


@pytest.mark.parametrize("lie", [forged, cut, flipped, another_table, lambda _: b"\0\0"])
def test_an_index_that_is_damaged_or_forged_is_not_believed(
    storage: StorageSettings, lie: Callable[[StorageSettings], bytes]
) -> None:
    look(storage)[0].save_indexes()
    if content := lie(storage):
        with atomic_output(index_uri(storage), storage.options) as out:
            out.write(content)
    listed, read = look(storage)
    assert read >= 1
    listed.save_indexes()
    assert look(storage)[1] == 0


def test_what_changed_since_is_read(storage: StorageSettings) -> None:
    look(storage)[0].save_indexes()
    make(storage, KEYS[0], "second")
    remove_file(storage.shard(KEYS[1]).record(STAGE), storage.options)
    with atomic_output(storage.shard(KEYS[2]).output(STAGE), storage.options) as out:
        out.write(b"replaced, and the index has a record of it")
    remove_file(storage.shard(KEYS[3]).output(STAGE), storage.options)
    listed, read = look(storage)
    assert read == 1
    assert [bool(listed.read_valid(storage.shard(key), [STAGE])) for key in KEYS[:5]] == [
        True,
        False,
        False,
        False,
        True,
    ]
    listed.save_indexes()
    assert look(storage)[1] == 0


def test_two_clusters_write_it_at_once(storage: StorageSettings) -> None:
    mine, _ = look(storage)
    make(storage, KEYS[0], "second")
    theirs, _ = look(storage)
    theirs.save_indexes()
    mine.save_indexes()  # the later one stays: it has the first record of one shard, whose stamp shows that it is old
    listed, read = look(storage)
    assert read == 1
    assert listed.read_valid(storage.shard(KEYS[0]), [STAGE])[STAGE].data_version.startswith("16367aacb67a4a01")


def test_a_record_that_is_replaced_while_it_is_read_is_not_kept_under_the_old_stamp(
    storage: StorageSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = list_records(storage, [STAGE])
    assert listed is not None
    make(storage, KEYS[0], "second")
    found = listed.read_valid(storage.shard(KEYS[0]), [STAGE])
    assert found == read_valid_records(storage.shard(KEYS[0]), [STAGE])
    listed.save_indexes()
    make(storage, KEYS[0], "first")  # the same record as listed, whose ETag is that of its content
    look(storage)


def test_where_etags_are_no_hashes_the_stamp_is_believed(tmp_path: Path) -> None:
    uri, stamp = str(tmp_path / "index.parquet"), "etag:0123-7"
    index = RecordIndex(uri, {})
    index.add("a", stamp, b"content", by_stamp=True)
    index.save({"a": stamp, "never read": "etag:4-5"})
    again = RecordIndex(uri, {})
    assert again.find("a", stamp) == b"content"
    assert again.find("a", "etag:0124-7") is again.find("b", stamp) is again.find("never read", "etag:4-5") is None


def test_records_that_did_not_change_stay_where_most_others_did(tmp_path: Path) -> None:
    uri = str(tmp_path / "index.parquet")

    def content(key: int, turn: int) -> bytes:
        return f'{{"key": {key}, "turn": {turn}}}'.encode()

    def look(turns: dict[int, int]) -> int:
        """A look at all records, whose turns these are; the number of those that the index lacks."""
        index = RecordIndex(uri, {})
        stamps = {str(key): content_stamp(content(key, turn)) for key, turn in turns.items()}
        lacking = [key for key, stamp in stamps.items() if index.find(key, stamp) is None]
        for key in lacking:
            index.add(key, stamps[key], content(int(key), turns[int(key)]), by_stamp=False)
        index.save(stamps)
        return len(lacking)

    assert [look(dict.fromkeys(range(10), 0)) for _ in range(2)] == [10, 0]
    changed = dict.fromkeys(range(10), 0) | dict.fromkeys(range(6), 1)
    assert [look(changed) for _ in range(3)] == [6, 0, 0]


def test_a_refused_write_is_logged_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    index = RecordIndex(str(tmp_path / "file" / "index.parquet"), {})
    index.add("a", content_stamp(b"1"), b"1", by_stamp=False)
    with caplog.at_level(logging.WARNING):
        index.save({"a": content_stamp(b"1")})
    assert "is not written, and looks at all shards stay slow" in caplog.text
