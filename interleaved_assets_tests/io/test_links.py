"""Shards that are symbolic links, as in the cache of Hugging Face: ``snapshots/r1/a.tar -> ../../blobs/<hash>``."""

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interleaved_assets.cli import main
from interleaved_assets.io.formats.shard import read_shard
from interleaved_assets.io.parquet.reader import InterleavedParquetReader
from interleaved_assets.io.parquet.writer import InterleavedParquetWriter
from interleaved_assets.io.rows.fill import materialize
from interleaved_assets.io.storage import folders_of
from interleaved_assets.io.tar.reader import InterleavedWebdatasetReader
from interleaved_assets.io.tar.writer import InterleavedWebdatasetWriter
from interleaved_assets.model.batch import InterleavedBatch
from interleaved_assets.selection.batch import filter_batch
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets_tests.documents import good_shard
from interleaved_assets_tests.io.row_tables import rows_table


def linked(file: Path, cache: Path, name: str) -> Path:
    """``file`` moved to ``blobs`` in ``cache``, with a link to it in ``snapshots/r1``, which a second link leads to."""
    blob, hop, link = cache / "blobs/0123abcd", cache / "hops/next", cache / "snapshots/r1" / name
    for path in (blob, hop, link):
        path.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(file, blob)
    hop.symlink_to("../blobs/0123abcd")
    link.symlink_to("../../hops/next")
    return link


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    return linked(good_shard(tmp_path / "made.tar"), tmp_path / "cache", "a.tar")


def images(table: pa.Table) -> list[bytes | None]:
    return [row["binary_content"] for row in table.to_pylist() if row["modality"] == "image"]


def errors(table: pa.Table) -> set[str | None]:
    return set(table["materialize_error"].to_pylist())


def test_images_of_a_linked_tar_are_read_lazily(tar: Path, tmp_path: Path) -> None:
    (eager,) = InterleavedWebdatasetReader(str(tar), materialize_on_read=True)
    (batch,) = InterleavedWebdatasetReader(str(tar))
    filled = materialize(batch.to_pyarrow(), allowed_roots=folders_of(batch.source_files))
    assert errors(filled) == {None}
    assert images(filled) == images(eager.to_pyarrow())
    kept, ledger = filter_batch(batch, SelectionSettings(on_score_error="drop_row"))
    assert ledger["reason"].to_pylist() == ["sharpness_below"]
    assert len(images(kept.to_pyarrow())) == 4
    for writer in (InterleavedParquetWriter, InterleavedWebdatasetWriter):
        (written,) = writer(str(tmp_path / writer.__name__)).write(batch)
        assert images(next(read_shard(written))) == images(eager.to_pyarrow())


def test_locators_in_linked_parquet_lead_to_files_beside_it_as_named_and_as_linked(
    tar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (batch,) = InterleavedWebdatasetReader(str(tar))
    beside = {"named": str(tar), "resolved": os.path.realpath(tar)}
    for name, place in beside.items():
        table = batch.to_pyarrow()
        refs = [json.dumps(json.loads(ref) | {"path": place}) for ref in table["source_ref"].to_pylist()]
        table = table.set_column(table.column_names.index("source_ref"), "source_ref", pa.array(refs))
        pq.write_table(table, tmp_path / "b.parquet")
        shutil.move(tmp_path / "b.parquet", tmp_path / f"cache/blobs/{name}")
        link = tar.with_name(f"{name}.parquet")
        link.symlink_to(f"../../blobs/{name}")
        assert errors(next(read_shard(str(link)))) == {None}
        (read,) = InterleavedParquetReader(str(link))
        assert errors(materialize(read.to_pyarrow(), allowed_roots=folders_of(read.source_files))) == {None}
        out = tmp_path / name
        out.mkdir()
        monkeypatch.chdir(out)
        assert main(["convert", str(link), "-o", "tars", "--to", "tar"]) == 0
        assert main(["score", str(link), "scores.parquet"]) == 0
        assert pq.read_table("scores.parquet")["score_error"].null_count == 5
        assert main(["view", str(link), "--out", "page.html"]) == 0
        assert "forbidden_path" not in (out / "page.html").read_text()


def test_only_the_folders_of_a_link_and_of_its_target_are_allowed(tar: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert folders_of([str(tar)]) == (f"{cache}/blobs", f"{cache}/snapshots/r1")
    assert folders_of([f"file://{tar}"]) == (f"{cache}/blobs", f"{cache}/snapshots/r1")
    (cache / "snapshots/r2").mkdir()
    for place in ("hops/secret", "secret", "snapshots/r2/secret"):
        (cache / place).write_bytes(b"secret")
    (cache / "snapshots/r1/link").symlink_to("../../secret")
    for place in ("hops/secret", "secret", "snapshots/r2/secret", "blobs/../secret", "snapshots/r1/link"):
        path = cache / place
        ref = InterleavedBatch.build_source_ref(path=str(path))
        table = rows_table([{"sample_id": "s", "position": 0, "modality": "image", "source_ref": ref}])
        filled = materialize(table, allowed_roots=folders_of([str(tar)]))
        assert filled["materialize_error"].to_pylist() == [
            f"forbidden_path: {path} is not below {cache}/blobs, {cache}/snapshots/r1: "
            "allowed_roots in the library, storage.raw_root in a project, has to name a folder above it"
        ]


def test_a_link_that_leads_nowhere_or_in_a_circle_adds_no_other_folder(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "broken").symlink_to("gone/a.tar")
    assert folders_of([f"{tmp_path}/circle", f"{tmp_path}/\0"]) == (str(tmp_path),)
    assert folders_of([f"{tmp_path}/broken"]) == (str(tmp_path), f"{tmp_path}/gone")
