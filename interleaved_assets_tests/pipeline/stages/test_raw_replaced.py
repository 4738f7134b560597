"""A raw shard whose images rows name, replaced, cut or exchanged at any moment: other bytes are never published."""

import errno
import hashlib
import os
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from interleaved_assets.cli import main
from interleaved_assets.io import InterleavedParquetReader, InterleavedWebdatasetWriter, materialize
from interleaved_assets.io.parquet.reader import read_parquet_shard
from interleaved_assets.io.rows.raw_versions import with_raw_version
from interleaved_assets.model.errors import MaterializeError, ShardError, StorageError
from interleaved_assets.pipeline.release.make import make_release
from interleaved_assets.pipeline.release.verify import verify_release
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status.vanished import files_to_forget, remove_files, vanished_shards
from interleaved_assets.reporting.documents.choice import Choice
from interleaved_assets.reporting.documents.pages import shard_documents
from interleaved_assets.settings import Settings, load_settings
from interleaved_assets_tests.defs.runs import Watcher, run_chain
from interleaved_assets_tests.documents import (
    ROWS,
    document,
    good_shard,
    project,
    sharp_image,
    stages_before,
    write_shard,
)
from interleaved_assets_tests.io.tars import frames_document, picture, tiff, write_tar
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.s3_requests import counted_requests
from interleaved_assets_tests.system_calls import failing, system_calls

BY_REFERENCE = 'image_bytes = "referenced"\n'
EXPORT = "[export]\nenabled = true\n"
READERS = ("image_scores", "final_tars", "image_export")
OTHER = "is not the raw shard that normalized was made from"


pytestmark = pytest.mark.project(BY_REFERENCE + EXPORT, shards={"a": 0})


def through(settings: Settings, *stages: str) -> Record:
    """Take the shard through these stages, by default through all; return the last record."""
    dag = stage_dag(settings)
    for name in stages or dag:
        outcome = take_through(dag[name], "a", settings)
    return outcome.record


def before(settings: Settings, stage: str) -> None:
    dag = list(stage_dag(settings))
    through(settings, *dag[: dag.index(stage)])


def other_pixels(tar: Path) -> bytes:
    """The tar with one changed byte in the data of an image: the same size, and another picture."""
    content = bytearray(tar.read_bytes())
    with tarfile.open(tar) as members:
        image = next(member for member in members if member.name.endswith(".png"))
    content[image.offset_data + image.size // 2] ^= 0xFF
    return bytes(content)


def with_its_times(tar: Path, change: Callable[[Path], None]) -> None:
    """Change the file and set its time back, as ``cp -p``, ``rsync -t`` and ``tar x`` do."""
    found = tar.stat()
    time.sleep(0.02)  # the clock of a file system ticks every few milliseconds
    change(tar)
    os.utime(tar, ns=(found.st_atime_ns, found.st_mtime_ns))


def written_over(tar: Path) -> None:
    tar.write_bytes(other_pixels(tar))


def renamed_over(tar: Path) -> None:
    tar.with_name("new").write_bytes(other_pixels(tar))
    tar.with_name("new").replace(tar)


def cut(tar: Path) -> None:
    tar.write_bytes(tar.read_bytes()[:-20_000])


def emptied(tar: Path) -> None:
    tar.write_bytes(bytes(tar.stat().st_size))


@pytest.mark.parametrize("stage", READERS)
@pytest.mark.parametrize("change", [written_over, renamed_over, cut, emptied])
def test_a_raw_shard_that_changed_and_kept_its_time(
    settings: Settings, tmp_path: Path, stage: str, change: Callable[[Path], None]
) -> None:
    before(settings, stage)
    with_its_times(tmp_path / "raw/a.tar", change)
    with pytest.raises(ShardError, match=OTHER):
        through(settings, stage)
    assert not (tmp_path / f"out/records/{stage}/a.json").exists()


def test_normalized_of_another_content_with_the_same_size_and_time_is_made_again(
    settings: Settings, tmp_path: Path
) -> None:
    first = through(settings, "normalized")
    with_its_times(tmp_path / "raw/a.tar", written_over)
    again = through(settings, "normalized")
    assert again.data_version != first.data_version
    assert again.source is not None
    assert first.source is not None
    assert again.source.version != first.source.version


@pytest.mark.parametrize("stage", READERS)
def test_a_link_that_leads_to_another_tar_of_the_same_size_and_time(
    settings: Settings, tmp_path: Path, stage: str
) -> None:
    tar = tmp_path / "raw/a.tar"
    kept, other = tmp_path / "kept.bin", tmp_path / "other.bin"
    other.write_bytes(other_pixels(tar))
    shutil.copystat(tar, other)
    tar.rename(kept)
    tar.symlink_to(kept)
    before(settings, stage)
    tar.unlink()
    tar.symlink_to(other)
    with pytest.raises(ShardError, match=OTHER):
        through(settings, stage)


@pytest.mark.parametrize("stage", READERS)
@pytest.mark.parametrize("change", [written_over, renamed_over])
def test_a_raw_shard_that_changes_during_a_stage(
    settings: Settings, tmp_path: Path, stage: str, change: Callable[[Path], None]
) -> None:
    before(settings, stage)
    opened: list[str] = []

    def see(event: str, path: str) -> None:
        if opened[-1:] == ["raw/a.tar"] and path.endswith(
            "/a.parquet"
        ):  # the rows, which are read when the tar is open
            with_its_times(tmp_path / "raw/a.tar", change)
        opened.append(path.removeprefix(f"{tmp_path}/"))

    with system_calls(see), pytest.raises((ShardError, StorageError), match=r"a\.tar changed while"):
        through(settings, stage)
    assert "raw/a.tar" in opened
    assert not (tmp_path / f"out/records/{stage}/a.json").exists()
    assert stage != "final_tars" or not list((tmp_path / "out").glob("tars/*"))


def test_a_page_is_not_drawn_from_other_bytes(settings: Settings, tmp_path: Path) -> None:
    through(settings)
    (page,) = [shard_documents("a", settings, Choice(), with_previews=True)]
    with_its_times(tmp_path / "raw/a.tar", written_over)
    changed = shard_documents("a", settings, Choice(), with_previews=True)
    pictures = [[item.picture for one in found.documents for item in one.items] for found in (page, changed)]
    assert pictures[0] != pictures[1]  # those of the second are the thumbnails that were made with the scores


def test_texts_are_rewritten_without_the_raw_shard(tmp_path: Path) -> None:
    settings = project(tmp_path, f'{BY_REFERENCE}[rewriting]\nfunctions = ["normalize_whitespace"]\n')
    good_shard(tmp_path / "raw/a.tar")
    through(settings, *stages_before("image_scores"))
    (tmp_path / "raw/a.tar").unlink()
    assert through(settings, "rewritten").counts_out.images == 5


IN_BUCKET = pytest.mark.project(BY_REFERENCE, in_bucket=True, shards={"a": 0})


@IN_BUCKET
def test_rows_in_a_bucket_name_the_version_of_their_raw_shard(
    settings: Settings, bucket: str, s3_environment: S3Server
) -> None:
    through(settings, "normalized")
    stored = settings.storage.shard("a").output("normalized")
    (table,) = read_parquet_shard(stored)
    assert materialize(table, allowed_roots=[bucket])["materialize_error"].null_count == table.num_rows
    good = s3_environment.fs.cat_file(f"{bucket}/raw/a.tar")
    s3_environment.fs.pipe(f"{bucket}/raw/a.tar", good[:-1] + b"x")
    errors = set(materialize(table, allowed_roots=[bucket])["materialize_error"].drop_null().to_pylist())
    assert [error.split(":")[0] for error in errors] == ["source_changed"]


def rows_of(settings: Settings, stage: str = "normalized") -> pa.Table:
    (table,) = read_parquet_shard(settings.storage.shard("a").output(stage))
    return table


def errors_of(table: pa.Table, root: Path) -> set[str]:
    filled = materialize(table, allowed_roots=[str(root)])
    images = filled.filter(pc.equal(filled["modality"], "image"))
    without = images.filter(images["materialize_error"].is_valid())
    assert without["binary_content"].null_count == without.num_rows
    return set(without["materialize_error"].to_pylist())


@pytest.mark.parametrize("stage", ["normalized", "filtered"])
@pytest.mark.parametrize("change", [written_over, renamed_over, cut, emptied])
def test_the_library_does_not_take_other_bytes(
    settings: Settings, tmp_path: Path, stage: str, change: Callable[[Path], None]
) -> None:
    through(settings, *stages_before("final_tars"))
    table = rows_of(settings, stage)
    assert errors_of(table, tmp_path) == set()
    with_its_times(tmp_path / "raw/a.tar", change)
    (error,) = errors_of(table, tmp_path)
    assert error.startswith("source_changed: ")
    assert error.endswith("raw/a.tar is not the raw shard that the rows were made from: it was replaced")


@pytest.mark.parametrize("bytes_of_images", ["referenced", "copied"])
def test_a_raw_shard_that_was_moved_into_a_bucket_is_read_once_and_not_made_again(
    tmp_path: Path, s3_environment: S3Server, bucket: str, bytes_of_images: str
) -> None:
    text = f'image_bytes = "{bytes_of_images}"\nbundles = {{images = 1}}\n[watch]\nquiet_seconds = 0\n'
    settings = project(tmp_path, text)
    good_shard(tmp_path / "raw/a.tar")
    (tmp_path / "raw/b.png").write_bytes(sharp_image(3))
    (tmp_path / "raw/b.txt").write_text("a caption")
    keys = ["a", "images-0-of-1"]
    with dg.DagsterInstance.ephemeral() as instance:
        sensor = Watcher(instance, settings)
        assert sensor.requested() == keys
        assert run_chain(instance, settings, keys).success
        tars = {path: path.read_bytes() for path in (tmp_path / "out/tars").iterdir()}
        s3_environment.fs.put(f"{tmp_path}/raw/", f"{bucket}/raw/", recursive=True)
        shutil.rmtree(tmp_path / "raw")
        file = tmp_path / "interleaved.toml"
        file.write_text(file.read_text().replace('raw_root = "raw"', f'raw_root = "{bucket}/raw"'))
        sensor.settings = settings = load_settings(file)
        assert sensor.requested() == keys  # a run compares them, and its records name the bucket
        dag = stage_dag(settings)
        assert all(take_through(stage, key, settings).unchanged for stage in dag.values() for key in keys)
        with counted_requests() as requests:
            assert all(take_through(dag["normalized"], key, settings).unchanged for key in keys)
            assert sensor.requested() == []
        assert not [request for request in requests if request.startswith("GET") and "/raw/a.tar" in request]
        Path(settings.storage.shard("a").record("final_tars")).unlink()
        take_through(dag["final_tars"], "a", settings)  # with images from the bucket
        assert {path: path.read_bytes() for path in tars} == tars
        # other bytes of the same size are not taken for them
        content = bytearray(s3_environment.fs.cat_file(f"{bucket}/raw/a.tar"))
        content[content.index(b"IDAT") + 100] ^= 1
        s3_environment.fs.pipe_file(f"{bucket}/raw/a.tar", bytes(content))
        assert not take_through(dag["normalized"], "a", settings).unchanged


def test_the_library_says_that_a_raw_shard_cannot_be_read(settings: Settings, tmp_path: Path) -> None:
    through(settings, "normalized")
    table, raw = rows_of(settings, "normalized"), tmp_path / "raw/a.tar"
    with failing("open", "raw/a.tar", PermissionError(errno.EACCES, "Permission denied")):
        (error,) = errors_of(table, tmp_path)
        assert error.startswith(f"unreadable_source: cannot read {raw}: Permission denied")
    raw.unlink()
    (error,) = errors_of(table, tmp_path)
    assert error.startswith(f"unreadable_source: cannot read {raw}: No such file")


def test_a_touched_raw_shard_is_hashed_and_read(settings: Settings, tmp_path: Path) -> None:
    through(settings, "normalized")
    table = rows_of(settings)
    os.utime(tmp_path / "raw/a.tar", (1, 1))
    assert errors_of(table, tmp_path) == set()


def test_a_version_of_an_older_record_is_compared_by_its_kind(settings: Settings, tmp_path: Path) -> None:
    through(settings, "normalized")
    table = rows_of(settings)
    assert errors_of(table, tmp_path) == set()
    raw = tmp_path / "raw/a.tar"
    version = f"sha256:{hashlib.sha256(raw.read_bytes()).hexdigest()}"
    older = with_raw_version(table.schema, str(raw), raw.stat().st_size, version)
    assert errors_of(table.replace_schema_metadata(older.metadata), tmp_path) == set()


def test_commands_and_writers_do_not_take_other_bytes(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    through(settings, "normalized")
    with_its_times(tmp_path / "raw/a.tar", written_over)
    monkeypatch.chdir(tmp_path)
    assert main(["convert", "out/normalized/a.parquet", "-o", "tars", "--to", "tar"]) != 0
    assert "is not the raw shard that the rows were made from" in capsys.readouterr().err
    assert not (tmp_path / "tars/a.tar").exists()
    assert main(["score", "out/normalized/a.parquet", "scores.parquet"]) == 0
    errors = pq.read_table(tmp_path / "scores.parquet")["score_error"].to_pylist()
    assert [error.split(":")[0] for error in errors] == ["source_changed"] * 5
    (batch,) = InterleavedParquetReader("out/normalized/a.parquet")
    with pytest.raises(MaterializeError, match="source_changed"):
        InterleavedWebdatasetWriter("written", allowed_roots=[str(tmp_path)]).write(batch)


def test_rows_of_two_raw_shards_in_one_batch_are_compared_with_theirs(tmp_path: Path) -> None:
    settings = project(tmp_path, BY_REFERENCE)
    for seed, key in enumerate("ab"):
        good_shard(tmp_path / f"raw/{key}.tar", seed=10 * seed)
        take_through(stage_dag(settings)["normalized"], key, settings)
    (batch,) = InterleavedParquetReader(str(tmp_path / "out/normalized"), files_per_partition=2)
    assert errors_of(batch.to_pyarrow(), tmp_path) == set()
    with_its_times(tmp_path / "raw/b.tar", written_over)
    filled = materialize(batch.to_pyarrow(), allowed_roots=[str(tmp_path)])
    failed = filled.filter(filled["materialize_error"].is_valid())
    assert {sample[:6] for sample in failed["sample_id"].to_pylist()} == {"doc-10"}


def test_rows_of_two_contents_of_one_raw_shard_are_not_read_together(settings: Settings, tmp_path: Path) -> None:
    through(settings, "normalized")
    shutil.copy(tmp_path / "out/normalized/a.parquet", tmp_path / "out/normalized/before.parquet")
    good_shard(tmp_path / "raw/a.tar", seed=1)
    through(settings, "normalized")
    with pytest.raises(ShardError, match=r"raw/a\.tar, and others from another content of it: read them apart"):
        list(InterleavedParquetReader(str(tmp_path / "out/normalized"), files_per_partition=2))


def test_a_raw_shard_that_is_replaced_after_it_was_compared(settings: Settings, tmp_path: Path) -> None:
    through(settings, "normalized")
    table, raw = rows_of(settings), tmp_path / "raw/a.tar"
    assert errors_of(table, tmp_path) == set()  # its content is known from now on

    def see(event: str, path: str) -> None:
        if event == "open" and path.endswith("raw/a.tar"):
            renamed_over(raw)

    with system_calls(see):
        (error,) = errors_of(table, tmp_path)
    assert error == f"source_changed: {raw} changed while it was read"


def test_a_size_that_does_not_fit_its_locator_is_an_error(settings: Settings, tmp_path: Path) -> None:
    through(settings, "normalized")
    table = rows_of(settings).replace_schema_metadata(None)  # as pandas writes it
    place = table.column_names.index("source_ref")
    refs = [ref and ref.replace('"byte_size": ', '"byte_size": 1') for ref in table["source_ref"].to_pylist()]
    codes = {error.split(":")[0] for error in errors_of(table.set_column(place, "source_ref", [refs]), tmp_path)}
    assert codes <= {"source_changed", "short_read"}
    swapped = [ref and refs_of(table)[0] for ref in table["source_ref"].to_pylist()]
    changed = errors_of(table.set_column(place, "source_ref", [swapped]), tmp_path)
    assert all(error.startswith("source_changed: ") for error in changed)
    assert len(changed) > 1


def refs_of(table: pa.Table) -> list[str]:
    return table["source_ref"].drop_null().to_pylist()


def test_a_damaged_entry_of_the_raw_shard_is_refused(settings: Settings, tmp_path: Path) -> None:
    through(settings, "normalized")
    table = rows_of(settings)
    for text in (b"{", b"[1]", b'{"a": 1}', b'{"a": {"size": "x", "version": 1}}'):
        with pytest.raises(ShardError, match="of the rows' schema is damaged"):
            materialize(table.replace_schema_metadata({b"interleaved_raw_shards": text}), allowed_roots=[str(tmp_path)])


def test_a_locator_exchanged_for_an_image_of_the_same_size_is_refused(tmp_path: Path) -> None:
    settings = project(tmp_path, BY_REFERENCE)
    frames = tiff(picture(1), picture(2))
    write_tar(
        tmp_path / "raw/a.tar", ("a.json", frames_document("page_0_image_0", "page_0_image_1")), ("a.tiff", frames)
    )
    through(settings, *stages_before("image_scores"))
    uri = settings.storage.shard("a").output(ROWS)
    rows = pq.read_table(uri)
    images = rows.filter(pc.equal(rows["modality"], "image"))
    assert images["_binary_size"][0] == images["_binary_size"][1]
    place = rows.column_names.index("source_ref")
    refs = [ref.replace('"frame_index": 0', '"frame_index": 1') for ref in rows["source_ref"].to_pylist()]
    pq.write_table(rows.set_column(place, "source_ref", pa.array(refs, pa.string())), uri)
    with pytest.raises(ShardError, match=f"needs {ROWS}, whose outputs are not those that its record names"):
        through(settings, "image_scores")


def test_a_frame_beyond_the_tiff_is_an_error(tmp_path: Path) -> None:
    from interleaved_assets.io.archive.source import open_tar
    from interleaved_assets.io.rows.fetch import ranges_of
    from interleaved_assets.io.rows.fill import fill_referenced

    settings = project(tmp_path, BY_REFERENCE)
    write_tar(
        tmp_path / "raw/a.tar",
        ("a.json", frames_document("page_0_image_0", "page_0_image_1")),
        ("a.tiff", tiff(picture(1), picture(2))),
    )
    through(settings, "normalized")
    rows = rows_of(settings)
    place = rows.column_names.index("source_ref")
    refs = [ref and ref.replace('"frame_index": 1', '"frame_index": 7') for ref in rows["source_ref"].to_pylist()]
    edited = rows.set_column(place, "source_ref", pa.array(refs, pa.string()))
    assert {error.split(":")[0] for error in errors_of(edited, tmp_path)} == {"frame_out_of_range"}
    with open_tar(str(tmp_path / "raw/a.tar")) as tar, pytest.raises(ShardError, match="frame 7 of a TIFF with 2"):
        list(fill_referenced([edited], tar.uri, ranges_of(tar), 2**20))


def test_forgetting_a_shard_leaves_the_raw_root_alone(settings: Settings, tmp_path: Path) -> None:
    through(settings)
    assert vanished_shards(settings.storage) == []
    (tmp_path / "raw/a.tar").rename(tmp_path / "raw/b.tar")
    assert vanished_shards(settings.storage) == ["a"]
    remove_files(files_to_forget(["a"], settings.storage), settings.storage)
    assert [path for path in (tmp_path / "out").rglob("a*") if path.is_file()] == []
    assert (tmp_path / "raw/b.tar").exists()


def pictures_in(tar: Path) -> list[tuple[str, bytes]]:
    with tarfile.open(tar) as members:
        files = [(member.name, members.extractfile(member)) for member in members]
        return [(name, file.read()) for name, file in files if file is not None and name.endswith(".png")]


def test_a_release_and_an_export_are_those_of_copied_images(tmp_path: Path) -> None:
    found = {}
    for form in ("copied", "referenced"):
        (tmp_path / form).mkdir()
        settings = project(tmp_path / form, f'image_bytes = "{form}"\n{EXPORT}')
        write_shard(tmp_path / form / "raw/a.tar", {"one": document("text", sharp_image(1), sharp_image(2))})
        through(settings)
        release = make_release("v1", settings)
        assert [one for one in verify_release(release.manifest, release.uri) if one is not None] == []
        tars = [*(tmp_path / form / "out/tars").rglob("*.tar"), *(tmp_path / form / "out/images").rglob("*.tar")]
        found[form] = [picture for tar in tars for picture in pictures_in(tar)]
    assert len(found["copied"]) == 4
    assert found["referenced"] == found["copied"]
