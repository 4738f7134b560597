"""The base of both shard writers, tested with the Parquet writer."""

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interleaved_assets.io.parquet.reader import InterleavedParquetReader
from interleaved_assets.io.parquet.writer import InterleavedParquetWriter
from interleaved_assets.io.rows.fetch import Access
from interleaved_assets.io.rows.writer import WriteMode
from interleaved_assets.io.storage import join
from interleaved_assets.io.tar.reader import InterleavedWebdatasetReader
from interleaved_assets.io.tar.writer import InterleavedWebdatasetWriter
from interleaved_assets.model.batch import InterleavedBatch
from interleaved_assets.model.errors import MaterializeError, OptionError, ShardError, StorageError
from interleaved_assets.model.source_ref import build_source_ref
from interleaved_assets.selection.batch import filter_batch
from interleaved_assets.settings.sections import LimitSettings
from interleaved_assets_tests.defects import stand_in
from interleaved_assets_tests.io.row_tables import image_bytes, rows_table, sample
from interleaved_assets_tests.io.tars import write_tar
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.s3_gate import s3_gate


def batch(*ids: str, sources: tuple[str, ...] = ("/raw/x.tar",)) -> InterleavedBatch:
    rows = [row for name in ids for row in sample(name, name.encode())]
    return InterleavedBatch(rows_table(rows), sources)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---------------------------------------------------------------- names and modes


def test_names_come_from_the_source_files_and_the_number(tmp_path: Path) -> None:
    def write(folder: Path) -> list[str]:
        writer = InterleavedParquetWriter(folder)
        paths = []
        for one in (
            batch("a"),
            batch("b", sources=("/raw/x.tar", "/raw/y.tar")),
            batch("c"),
            batch("d", sources=("/other/x.tar",)),
            batch("e", sources=("s3://b/shard.v1 ü%.tar.gz",)),
            batch("f", sources=()),
            batch("g", sources=()),
        ):
            paths += writer.write(one)
        return [Path(path).name for path in paths]

    first = write(tmp_path / "1")
    assert first == write(tmp_path / "2")
    assert len(set(first)) == 7
    assert names(tmp_path / "1") == sorted(first)
    assert first[0].replace("-00000", "-00001") == first[2]
    assert [name.partition("-")[0] for name in first] == ["x", "x", "x", "x", "shard", "batch", "batch"]
    assert [re.fullmatch(r"batch-[0-9a-f]{12}-(\d{5})\.parquet", name)[1] for name in first[5:]] == ["00000", "00000"]


def test_writers_of_other_rows_without_source_files_do_not_replace_each_other(tmp_path: Path) -> None:
    def write(sample_id: str) -> str:
        batch = InterleavedBatch(rows_table([{"sample_id": sample_id, "position": 0, "modality": "text"}]))
        (path,) = InterleavedParquetWriter(str(tmp_path), mode="overwrite").write(batch)
        return path

    first, second, again = write("a"), write("b"), write("a")
    assert (first == again, first == second) == (True, False)
    assert pq.read_table(first)["sample_id"].to_pylist() == ["a"]
    assert pq.read_table(second)["sample_id"].to_pylist() == ["b"]


def test_a_long_name_is_cut(tmp_path: Path) -> None:
    sources = [("/raw/" + "ü" * 100 + end + ".tar",) for end in "ab"]
    paths = [
        path for source in sources for path in InterleavedParquetWriter(tmp_path).write(batch("a", sources=source))
    ]
    assert len(set(paths)) == 2
    assert all(len(Path(path).name) < 200 for path in paths)


def contents(folder: Path) -> dict[str, list[str]]:
    return {path.name: pq.read_table(path)["sample_id"].unique().to_pylist() for path in folder.iterdir()}


def test_modes_touch_no_other_file(tmp_path: Path) -> None:
    (path,) = InterleavedParquetWriter(tmp_path).write(batch("old"))
    name = Path(path).name
    with pq.ParquetWriter(tmp_path / "other.parquet", batch("a").to_pyarrow().schema) as other:
        other.write_table(batch("other").to_pyarrow())

    with pytest.raises(StorageError, match=r"the file exists\. Choose mode='overwrite', 'append' or 'ignore'"):
        InterleavedParquetWriter(tmp_path).write(batch("new"))
    assert InterleavedParquetWriter(tmp_path, mode="ignore").write(batch("new")) == []
    assert contents(tmp_path) == {name: ["old"], "other.parquet": ["other"]}

    (appended,) = InterleavedParquetWriter(tmp_path, mode="append").write(batch("more"))
    assert appended == path.replace("-00000", "-00001")
    assert InterleavedParquetWriter(tmp_path, mode="overwrite").write(batch("new")) == [path]
    assert contents(tmp_path) == {name: ["new"], Path(appended).name: ["more"], "other.parquet": ["other"]}


def test_ignore_still_counts_the_batches(tmp_path: Path) -> None:
    InterleavedParquetWriter(tmp_path).write(batch("first"))
    writer = InterleavedParquetWriter(tmp_path, mode="ignore")
    assert writer.write(batch("first again")) == []
    (path,) = writer.write(batch("second"))
    assert path.endswith("-00001.parquet")


def test_a_failed_batch_does_not_use_up_its_number(tmp_path: Path) -> None:
    writer = InterleavedParquetWriter(tmp_path)
    with pytest.raises(MaterializeError):
        writer.write(InterleavedBatch(rows_table(sample("a", None)), ("/raw/x.tar",)))
    assert names(tmp_path) == []
    (path,) = writer.write(batch("a"))
    assert path.endswith("-00000.parquet")


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_batches_of_one_source_that_threads_write_at_once_are_files_of_their_own(
    mode: WriteMode, tmp_path: Path
) -> None:
    both_are_writing = threading.Barrier(2, timeout=30)

    class Writer(InterleavedParquetWriter):
        def write_shard(self, uri: str, schema: pa.Schema, parts: Iterator[pa.Table]) -> None:
            both_are_writing.wait()
            super().write_shard(uri, schema, parts)

    writer = Writer(tmp_path, mode=mode)
    with ThreadPoolExecutor(2) as threads:
        paths = [path for written in threads.map(writer.write, [batch("a"), batch("b")]) for path in written]
    assert [pq.read_table(path)["sample_id"].unique().to_pylist() for path in paths] == [["a"], ["b"]]
    assert [path[-13:-8] for path in sorted(paths)] == ["00000", "00001"]


def test_a_writer_does_not_wait_for_the_storage_of_another(s3_server: S3Server, bucket: str, tmp_path: Path) -> None:
    asked, answered = threading.Event(), threading.Event()

    def late(method: str, path: str) -> None:
        asked.set()
        answered.wait(timeout=30)

    with s3_gate(s3_server) as gate, ThreadPoolExecutor(2) as threads:
        gate.refuses = late
        remote = threads.submit(
            InterleavedParquetWriter(f"{bucket}/out", storage_options=gate.storage_options).write, batch("a")
        )
        assert asked.wait(timeout=30)
        assert len(threads.submit(InterleavedParquetWriter(tmp_path).write, batch("a")).result(timeout=10)) == 1
        assert not remote.done()
        answered.set()
        assert len(remote.result()) == 1


def test_modes_on_s3(s3_server: S3Server, bucket: str) -> None:
    options = {"storage_options": s3_server.storage_options}
    (path,) = InterleavedParquetWriter(f"{bucket}/out", **options).write(batch("a"))
    assert path.startswith(f"{bucket}/out/x-")
    with pytest.raises(StorageError, match="the file exists"):
        InterleavedParquetWriter(f"{bucket}/out", **options).write(batch("a"))
    # storage options among the write options are as good
    writer = InterleavedParquetWriter(f"{bucket}/out/", mode="overwrite", write_kwargs=options)
    assert writer.write(batch("b")) == [path]
    (found,) = InterleavedParquetReader(f"{bucket}/out", read_kwargs=options)
    assert found.to_pyarrow() == batch("b").to_pyarrow()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "replace"}, "mode must be one of error, overwrite, append, ignore, got 'replace'"),
        ({"on_materialize_error": "skip"}, "on_materialize_error must be one of error, warn, drop_row, drop_sample"),
    ],
)
def test_invalid_options_are_refused(tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        InterleavedParquetWriter(tmp_path, **options)


def test_limits_are_options_of_the_writers(tmp_path: Path) -> None:
    image = tmp_path / "a.png"
    image.write_bytes(image_bytes(1, 3000))
    rows = sample("a", None)
    rows[2]["source_ref"] = build_source_ref(str(image))
    limited = InterleavedBatch(rows_table(rows), (str(tmp_path / "x.tar"),))
    for writer in (InterleavedParquetWriter, InterleavedWebdatasetWriter):
        for option, code in (("max_member_bytes", "member_too_large"), ("max_sample_bytes", "sample_too_large")):
            with pytest.raises(MaterializeError, match=code):
                writer(tmp_path / "out", write_kwargs={option: "2kB"}).write(limited)
        with pytest.raises(OptionError, match="max_unpacked_bytes must be bytes"):
            writer(tmp_path / "out", write_kwargs={"max_unpacked_bytes": "big"})
    limits = LimitSettings(max_document_bytes=2**20, max_columns=7).for_tars()._asdict()
    writer = InterleavedWebdatasetWriter(tmp_path / "out", write_kwargs=limits)
    with pytest.raises(OptionError, match=r"sample 'b': its JSON takes .* over max_document_bytes"):
        writer.write(InterleavedBatch(rows_table(sample("b", b"png", text="x" * 2**20))))
    wide = rows_table(sample("c", b"png"), **{f"k{number}": pa.nulls(3) for number in range(8)})
    with pytest.raises(OptionError, match="8 passthrough columns, over max_columns 7"):
        writer.write(InterleavedBatch(wide))
    assert writer.write(limited)


# ---------------------------------------------------------------- schema


def test_schema(tmp_path: Path) -> None:
    table = batch("a").to_pyarrow().append_column("n", pa.array([1, 2, 300]))
    (path,) = InterleavedParquetWriter(tmp_path / "1", schema_overrides={"n": pa.int16()}).write(
        InterleavedBatch(table)
    )
    assert pq.read_table(path)["n"].type == pa.int16()
    with pytest.raises(
        ShardError, match=r"^/raw/x.tar: column 'n' is int64 and cannot become int8: Integer value 300 "
    ):
        InterleavedParquetWriter(tmp_path / "2", schema_overrides={"n": pa.int8()}).write(
            InterleavedBatch(table, ("/raw/x.tar",))
        )
    assert not any((tmp_path / "2").iterdir())
    schema = pa.schema([pa.field("text_content", pa.string()), pa.field("new", pa.int8())])
    (path,) = InterleavedParquetWriter(tmp_path / "3", schema=schema).write(InterleavedBatch(table))
    assert pq.read_table(path).schema == schema


def test_a_dataframe_is_written_too(tmp_path: Path) -> None:
    frame = InterleavedBatch(batch("a").to_pandas(), ("/raw/x.tar",))
    (path,) = InterleavedParquetWriter(tmp_path).write(frame)
    assert pq.read_table(path) == batch("a").to_pyarrow()


def test_rows_without_required_columns_are_refused(tmp_path: Path) -> None:
    table = batch("a").to_pyarrow()
    with pytest.raises(OptionError, match=r"the rows of /raw/x.tar lack the required columns position"):
        InterleavedParquetWriter(tmp_path).write(InterleavedBatch(table.drop_columns(["position"]), ("/raw/x.tar",)))
    nulls = table.set_column(1, "position", pa.nulls(table.num_rows, pa.int32()))
    with pytest.raises(ShardError, match=r"^a batch without source files: column 'position' must not be null"):
        InterleavedParquetWriter(tmp_path).write(InterleavedBatch(nulls))
    assert names(tmp_path) == []


# ---------------------------------------------------------------- materialization and the error policy


@pytest.fixture
def lazy(tmp_path: Path) -> InterleavedBatch:
    """Three samples whose images lie in files; the second one's second image is missing."""
    raw = tmp_path / "raw"
    raw.mkdir()
    rows = []
    for number in range(3):
        rows += sample(f"s{number}", None, None)
        for image in (2, 4):
            path = raw / f"{number}-{image}.jpg"
            rows[-5 + image]["source_ref"] = build_source_ref(str(path))
            if (number, image) != (1, 4):
                path.write_bytes(image_bytes(10 * number + image, 1000))
    return InterleavedBatch(rows_table(rows), (str(raw / "shard.tar"),))


def test_error_names_the_batch_and_writes_nothing(lazy: InterleavedBatch, tmp_path: Path) -> None:
    writer = InterleavedParquetWriter(tmp_path / "out")
    with pytest.raises(MaterializeError, match=r"shard\.tar: sample 's1', position 3, .*unreadable_source: ") as caught:
        writer.write(lazy)
    assert caught.value.code == "unreadable_source"
    assert names(tmp_path / "out") == []
    assert writer.ledger.num_rows == 0


@pytest.mark.parametrize(
    ("policy", "kept", "dropped"),
    [
        ("warn", 15, []),
        ("drop_row", 14, [("s1", 3, "unreadable_source")]),
        ("drop_sample", 10, [("s1", position, "sample_dropped") for position in range(-1, 3)]),
    ],
)
def test_policies_warn_drop_row_and_drop_sample(
    lazy: InterleavedBatch, tmp_path: Path, policy: str, kept: int, dropped: list
) -> None:
    writer = InterleavedParquetWriter(tmp_path / "out", on_materialize_error=policy)
    (path,) = writer.write(lazy)
    table = pq.read_table(path)
    assert table.num_rows == kept
    assert table["binary_content"].to_pylist()[2] == image_bytes(2, 1000)
    ledger = [(row["sample_id"], row["position"], row["reason"]) for row in writer.ledger.to_pylist()]
    assert ledger[: len(dropped)] == dropped
    assert table.num_rows + len(ledger) == 15


def test_the_policy_covers_errors_of_earlier_stages(tmp_path: Path) -> None:
    rows = sample("a", b"1") + sample("b", None)
    rows[-1]["materialize_error"] = "missing_member: x.png is not in the shard"
    writer = InterleavedParquetWriter(tmp_path, on_materialize_error="drop_row", materialize_on_write=False)
    writer.write(InterleavedBatch(rows_table(rows)))
    assert writer.ledger["reason"].to_pylist() == ["missing_member"]
    with pytest.raises(MaterializeError, match="missing_member"):
        InterleavedParquetWriter(tmp_path, mode="append").write(InterleavedBatch(rows_table(rows)))


def test_without_materialization_rows_stay_as_they_are(lazy: InterleavedBatch, tmp_path: Path) -> None:
    (path,) = InterleavedParquetWriter(tmp_path / "out", materialize_on_write=False).write(lazy)
    assert pq.read_table(path) == lazy.to_pyarrow()


def test_fetching_is_limited_to_the_source_folders(lazy: InterleavedBatch, tmp_path: Path) -> None:
    elsewhere = InterleavedBatch(lazy.to_pyarrow(), ("/elsewhere/shard.parquet",))
    with pytest.raises(MaterializeError, match=r"forbidden_path: .* is not below /elsewhere"):
        InterleavedParquetWriter(tmp_path / "out").write(elsewhere)
    roots = [str(tmp_path / "raw")]
    writer = InterleavedParquetWriter(tmp_path / "out", allowed_roots=roots, on_materialize_error="drop_row")
    writer.write(elsewhere)
    assert writer.ledger["reason"].to_pylist() == ["unreadable_source"]


def test_a_batch_emptied_by_the_policy_is_a_file_without_rows(tmp_path: Path) -> None:
    writer = InterleavedParquetWriter(tmp_path, on_materialize_error="drop_sample")
    (path,) = writer.write(InterleavedBatch(rows_table(sample("a", None))))
    assert pq.read_table(path).num_rows == 0
    assert writer.ledger.num_rows == 3
    (empty,) = InterleavedParquetReader(tmp_path)
    assert (empty.count(), empty.source_files) == (0, (path,))


@pytest.mark.parametrize("kind", [InterleavedParquetWriter, InterleavedWebdatasetWriter])
def test_an_empty_tar_becomes_a_file_without_rows(tmp_path: Path, kind: type) -> None:
    write_tar(tmp_path / "in" / "a.tar")
    (batch,) = InterleavedWebdatasetReader(tmp_path / "in", materialize_on_read=True)
    (path,) = kind(tmp_path / "out").write(filter_batch(batch)[0])
    reader = InterleavedParquetReader if kind is InterleavedParquetWriter else InterleavedWebdatasetReader
    assert [again.count() for again in reader(path)] == [0]


@pytest.mark.parametrize("policy", ["drop_row", "drop_sample"])
def test_fetching_in_parts_writes_the_same_file(
    lazy: InterleavedBatch, tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"on_materialize_error": policy}
    whole = InterleavedParquetWriter(tmp_path / "whole", **options)
    (first,) = whole.write(lazy)
    fetched = []
    from interleaved_assets.io.rows import fill, writer

    usual = fill.materialize_parts

    def counted(table: pa.Table, limit: int | None, access: Access) -> Iterator[pa.Table]:
        fetched.append(table.num_rows)
        return usual(table, limit, access)

    stand_in(monkeypatch, fill, "materialize_parts", counted)
    stand_in(monkeypatch, writer, "_PART_BYTES", 2**21)
    parts = InterleavedParquetWriter(tmp_path / "parts", **options)
    (second,) = parts.write(lazy)
    assert fetched == [5, 5, 5]
    assert Path(first).read_bytes() == Path(second).read_bytes()
    assert parts.ledger == whole.ledger
    # rows of a sample that lie apart are not torn, whatever is to be fetched
    order = pa.array(np.random.default_rng(0).permutation(15))
    apart = InterleavedBatch(lazy.to_pyarrow().take(order), lazy.source_files)
    of_rows_apart = InterleavedParquetWriter(tmp_path / "apart", **options)
    of_rows_apart.write(apart)
    assert fetched[3:] == [15]
    assert of_rows_apart.ledger.num_rows == whole.ledger.num_rows


def test_reader_and_writer_chain(tmp_path: Path) -> None:
    for name in "abc":
        InterleavedParquetWriter(tmp_path / "in").write(batch(name, f"{name}2", sources=(f"/raw/{name}.tar",)))
    writer = InterleavedParquetWriter(tmp_path / "out")
    paths = []
    for one in InterleavedParquetReader(tmp_path / "in", files_per_partition=2, max_batch_bytes="1GiB"):
        paths += writer.write(one.delete_rows([kind == "text" for kind in one.to_pyarrow()["modality"].to_pylist()]))
    assert len(paths) == 2
    found = [name for one in InterleavedParquetReader(paths) for name in one.to_pyarrow()["sample_id"].to_pylist()]
    assert sorted(set(found)) == ["a", "a2", "b", "b2", "c", "c2"]
    assert len(found) == 12


@pytest.mark.parametrize("place", [None, 5, b"out", ["out"]])
def test_an_output_folder_that_is_no_path_is_refused(place: object) -> None:
    for writer in (InterleavedParquetWriter, InterleavedWebdatasetWriter):
        with pytest.raises(OptionError, match=f"output_dir is a path or a URL, got {type(place).__name__}"):
            writer(place)


def test_a_scheme_alone_is_not_made_a_local_folder() -> None:
    assert join("s3://", "a.tar") == "s3://a.tar"
    assert join("s3://b//", "a.tar") == "s3://b/a.tar"
    assert join("/", "a.tar") == "/a.tar"
