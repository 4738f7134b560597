import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest

from interleaved_assets.io.parquet.source import open_parquet
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.storage import atomic_output, keep_copies, warm
from interleaved_assets.io.storage.warm import open_copy
from interleaved_assets.model.errors import StorageError
from interleaved_assets.pipeline.execute import take_through
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings, StorageSettings
from interleaved_assets_tests.documents import good_shard, project
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.s3_gate import Refusal, S3Gate, s3_gate

MIB = 2**20


class Requests(Counter[str]):
    """Requests by method and path, counted at the gate."""

    def __call__(self, method: str, path: str) -> Refusal | None:
        self[f"{method} {unquote(path.partition('?')[0])}"] += 1
        return None

    def gets(self, url: str) -> int:
        return self[f"GET /{url.removeprefix('s3://')}"]


@pytest.fixture
def gate(s3_server: S3Server) -> Iterator[S3Gate]:
    with s3_gate(s3_server) as gate:
        gate.refuses = Requests()
        yield gate
    keep_copies(0)


def rows(value: int, mib: int = 1) -> pa.Table:
    return pa.table({"binary_content": pa.array([bytes([value]) * mib * MIB], pa.large_binary())})


def write(url: str, table: pa.Table, server: S3Server) -> None:
    with parquet_shard(url, table.schema, storage_options=server.storage_options) as shard:
        shard.write(table)


def read(url: str, server: S3Server) -> pa.Table:
    with open_parquet(url, server.storage_options) as source:
        return source.read(source.schema.names)


def gets(gate: S3Gate, url: str) -> int:
    assert isinstance(gate.refuses, Requests)
    return gate.refuses.gets(url)


def test_what_was_just_written_is_not_fetched(bucket: str, gate: S3Gate) -> None:
    url = f"{bucket}/a.parquet"
    for limit, fetched in ((0, True), (8 * MIB, False)):
        keep_copies(limit)
        write(url, rows(1), gate)
        before = gets(gate, url)
        assert read(url, gate).equals(rows(1))
        assert (gets(gate, url) > before) is fetched
    keep_copies(0)
    before = gets(gate, url)
    assert read(url, gate).equals(rows(1))  # copies are given up when none are to be kept
    assert gets(gate, url) > before


def test_an_object_that_another_process_replaced_is_fetched(bucket: str, gate: S3Gate, s3_server: S3Server) -> None:
    url = f"{bucket}/a.parquet"
    keep_copies(8 * MIB)
    write(url, rows(1), gate)
    write(url, rows(2), s3_server)  # to this process another server, so its copy is of another file
    assert read(url, gate).equals(rows(2))
    assert gets(gate, url) > 0
    s3_server.fs.rm_file(url)
    with pytest.raises(StorageError, match=r"cannot read s3://.*/a\.parquet"):
        read(url, gate)


def test_the_copy_used_last_makes_room(bucket: str, gate: S3Gate) -> None:
    a, b, c = (f"{bucket}/{name}.parquet" for name in "abc")
    keep_copies(5 * MIB)
    for value, url in enumerate((a, b)):
        write(url, rows(value, mib=2), gate)
    assert read(a, gate).equals(rows(0, mib=2))
    write(c, rows(3, mib=2), gate)
    for url, table, is_kept in ((b, rows(1, mib=2), True), (c, rows(3, mib=2), True), (a, rows(0, mib=2), False)):
        assert read(url, gate).equals(table)
        assert (gets(gate, url) == 0) is is_kept


def test_the_number_of_copies_is_limited_since_each_is_an_open_file(
    bucket: str, gate: S3Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "_MOST", 2)
    keep_copies(8 * MIB)
    urls = [f"{bucket}/{number}.parquet" for number in range(4)]
    for url in urls:
        write(url, rows(1), gate)
    for url in urls:
        assert read(url, gate).equals(rows(1))
    assert [gets(gate, url) == 0 for url in urls] == [True, False, False, True]


def test_a_file_above_the_limit_is_not_kept_and_not_damaged(bucket: str, gate: S3Gate) -> None:
    url = f"{bucket}/a.parquet"
    keep_copies(MIB)
    write(url, rows(1, mib=3), gate)
    assert read(url, gate).equals(rows(1, mib=3))
    assert gets(gate, url) > 0


def test_files_that_are_written_at_once_count_together(bucket: str, gate: S3Gate) -> None:
    kept, one, two = (f"{bucket}/{name}.parquet" for name in ("kept", "one", "two"))
    keep_copies(5 * MIB)
    write(kept, rows(1), gate)
    options = {"storage_options": gate.storage_options, "read_next": True}
    with atomic_output(one, **options) as first, atomic_output(two, **options) as second:
        first.write(b"x" * 3 * MIB)
        second.write(b"y" * 3 * MIB)  # has no place beside the first one, and takes none of the others
    assert [open_copy(url, gate.storage_options) is not None for url in (kept, one, two)] == [True, True, False]


def test_a_copy_that_makes_room_stays_readable_while_it_is_open(bucket: str, gate: S3Gate) -> None:
    a, b = f"{bucket}/a.parquet", f"{bucket}/b.parquet"
    keep_copies(3 * MIB)
    write(a, rows(1, mib=2), gate)
    with open_parquet(a, gate.storage_options) as source:
        write(b, rows(2, mib=2), gate)
        assert source.read(source.schema.names).equals(rows(1, mib=2))
    assert gets(gate, a) == 0


def test_a_full_disk_leaves_the_object_and_says_so(
    bucket: str, gate: S3Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"{bucket}/a.parquet"
    keep_copies(8 * MIB)
    monkeypatch.setattr(warm.tempfile, "TemporaryFile", lambda **_: Path("/dev/full").open("wb"))  # noqa: SIM115
    with caplog.at_level(logging.WARNING):
        write(url, rows(1), gate)
    assert read(url, gate).equals(rows(1))
    assert gets(gate, url) > 0
    assert "a.parquet is not kept on the local disk for the next stages: [Errno 28] No space left" in caplog.text


def test_a_write_that_fails_leaves_no_copy(bucket: str, gate: S3Gate) -> None:
    url = f"{bucket}/a.parquet"
    keep_copies(8 * MIB)
    write(url, rows(1), gate)
    with pytest.raises(ZeroDivisionError), atomic_output(url, gate.storage_options, read_next=True) as out:
        out.write(b"x" * (MIB // 0))
    assert read(url, gate).equals(rows(1))
    assert gets(gate, url) == 0  # the copy of what is still there


def test_a_chain_in_a_bucket_fetches_none_of_its_parquet_files(bucket: str, gate: S3Gate, tmp_path: Path) -> None:
    settings = project(tmp_path)
    good_shard(tmp_path / "raw" / "a.tar", seed=1)
    contents = []
    for scratch in (0, 64 * MIB):
        here = _in_bucket(settings, f"{bucket}/{scratch}", gate, scratch)
        records = {name: take_through(stage, "a", here).record for name, stage in stage_dag(here).items()}
        contents.append(
            {name: {role: file.sha256 for role, file in record.outputs.items()} for name, record in records.items()}
        )
        fetched = {
            name: gets(gate, file.uri)
            for name, record in records.items()
            for file in record.outputs.values()
            if file.uri.endswith(".parquet")
        }
        assert any(fetched.values()) is (scratch == 0), fetched
        # the check of the final tar reads what the bucket holds
        assert gets(gate, records["final_tars"].outputs["rows"].uri) > 0
    assert contents[0] == contents[1]


def _in_bucket(base: Settings, url: str, gate: S3Gate, scratch: int) -> Settings:
    storage = StorageSettings(raw_root=base.storage.raw_root, output_root=url, options={"s3": gate.storage_options})
    return base.model_copy(update={"storage": storage, "run": base.run.model_copy(update={"scratch_bytes": scratch})})
