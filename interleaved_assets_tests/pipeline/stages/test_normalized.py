import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from interleaved_assets.io.tar.reader import InterleavedWebdatasetReader
from interleaved_assets.io.tar.writer import InterleavedWebdatasetWriter
from interleaved_assets.model.errors import MaterializeError, ShardError
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets_tests.documents import blurred_image, document, good_shard, project, sharp_image, write_shard


def test_rows_bytes_and_facts(tmp_path: Path) -> None:
    settings = project(tmp_path)
    good_shard(tmp_path / "raw" / "a.tar", seed=1)
    record = take_through(stage_dag(settings)["normalized"], "a", settings).record
    table = pq.read_table(record.outputs["rows"].uri)
    assert record.counts_in == record.counts_out
    assert (record.counts_out.rows, record.counts_out.samples, record.counts_out.images) == (13, 3, 5)
    images = table.filter(pc.equal(table["modality"], "image"))["binary_content"].to_pylist()
    assert images[0] == sharp_image(1)
    assert record.counts_out.image_bytes == sum(map(len, images))
    assert record.columns["url"] == "string"
    assert pq.read_table(record.outputs["ledger"].uri).num_rows == 0


def test_no_tar_and_policy_error_write_nothing(tmp_path: Path) -> None:
    settings = project(tmp_path)
    (tmp_path / "raw" / "no.tar").write_bytes(b"not a tar" * 200)
    with pytest.raises(ShardError, match=r"no\.tar"):
        take_through(stage_dag(settings)["normalized"], "no", settings)
    fields, _ = document("text", sharp_image(1))
    write_shard(
        tmp_path / "raw" / "bad.tar", {"doc": (fields | {"images": [None, b"not an image"], "texts": [1, None]}, [])}
    )
    with pytest.raises(MaterializeError, match=r"bad: sample 'doc', position 0, .*invalid_text"):
        take_through(stage_dag(settings)["normalized"], "bad", settings)
    assert not (tmp_path / "out").exists() or not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def test_limits_of_the_settings_hold_and_count_where_they_change_rows(tmp_path: Path) -> None:
    settings = project(tmp_path, "[limits]\nmax_member_bytes = '1MiB'\n\n[errors]\non_materialize_error = 'warn'\n")
    fields, _ = document("text", sharp_image(1))
    write_shard(tmp_path / "raw" / "a.tar", {"doc": (fields | {"images": [None, b"\xff\xd8\xff" + bytes(2**20)]}, [])})
    record = take_through(stage_dag(settings)["normalized"], "a", settings).record
    errors = pq.read_table(record.outputs["rows"].uri)["materialize_error"].drop_null().to_pylist()
    assert [error.partition(":")[0] for error in errors] == ["member_too_large"]

    def stated(**limits: int) -> object:
        changed = settings.limits.model_copy(update=limits)
        return stage_dag(settings)["normalized"].settings(settings.model_copy(update={"limits": changed}))

    assert stated(max_columns=5) != stated()
    assert stated(max_unpacked_bytes=2**20) == stated()


def test_an_empty_tar_gives_empty_outputs(tmp_path: Path) -> None:
    settings = project(tmp_path)
    write_shard(tmp_path / "raw" / "empty.tar", {})
    record = take_through(stage_dag(settings)["normalized"], "empty", settings).record
    assert record.counts_out.rows == 0
    assert pq.read_table(record.outputs["rows"].uri).num_rows == 0


@pytest.mark.system
def test_memory_follows_batches_and_row_groups_and_not_the_shard(tmp_path: Path) -> None:
    settings = project(tmp_path, "[run]\nmax_batch_bytes = 8388608\n")
    images = [b"\x89PNG" + bytes([number]) * 4_000_000 for number in range(60)]
    documents = {f"doc-{number:02}": document("text", image) for number, image in enumerate(images)}
    write_shard(tmp_path / "raw" / "large.tar", documents)
    del documents, images
    code = (
        "import sys, pyarrow as pa\n"
        "from interleaved_assets.pipeline.run.one import take_through\n"
        "from interleaved_assets.pipeline.stages.dag import stage_dag\n"
        "from interleaved_assets.settings import load_settings\n"
        "settings = load_settings(sys.argv[1])\n"
        "take_through(stage_dag(settings)['normalized'], 'large', settings)\n"
        "print(pa.default_memory_pool().max_memory())\n"
    )
    # a process of its own, since the pool's peak is that of the process
    command = [sys.executable, "-c", code, str(tmp_path / "interleaved.toml")]
    peak = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert peak < 200_000_000  # of 240 MB of images: two row groups of 64 MiB, and a few batches
    assert settings.run.max_batch_bytes == 8 * 2**20


def test_a_raw_shard_that_is_a_link_may_name_images_beside_the_file_it_leads_to(tmp_path: Path) -> None:
    settings = project(tmp_path, "[errors]\non_materialize_error = 'warn'\n")
    blobs = tmp_path / "blobs"
    good_shard(blobs / "images.tar", seed=1)
    (batch,) = InterleavedWebdatasetReader(str(blobs / "images.tar"))
    writer = InterleavedWebdatasetWriter(str(blobs), materialize_on_write=False, on_materialize_error="warn")
    (locators,) = writer.write(batch)
    (tmp_path / "raw/sub").mkdir()
    (tmp_path / "raw/sub/a.tar").symlink_to(locators)
    (tmp_path / "raw/sub/moved.tar").write_bytes(Path(locators).read_bytes())
    record = take_through(stage_dag(settings)["normalized"], "sub/a", settings).record
    assert record.errors == {}
    assert record.counts_out.image_bytes == sum(map(len, map(sharp_image, range(1, 5)))) + len(blurred_image())
    # a file of the raw root itself may not
    moved = take_through(stage_dag(settings)["normalized"], "sub/moved", settings).record
    assert moved.errors == {"forbidden_path": 5}
