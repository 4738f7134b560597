"""From a final tar back to its raw shard."""

import shutil
from pathlib import Path

import pytest
import xxhash

from interleaved_assets.model.errors import ShardError, StorageError
from interleaved_assets.pipeline.lineage.tar import tar_at, trace_tar
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import STAGES, good_shard, project
from interleaved_assets_tests.projects import take_all

pytestmark = pytest.mark.project(shards={"a": ord("a"), "web/b": ord("b")}, done=("a", "web/b"))


def hash_of(path: Path) -> str:
    return f"xxh3:{xxhash.xxh3_128_hexdigest(path.read_bytes())}"


def test_a_tar_where_it_was_written(settings: Settings, tmp_path: Path) -> None:
    trace = trace_tar(str(tmp_path / "out/tars/web/b.tar"), settings)
    raw = tmp_path / "raw/web/b.tar"
    assert trace.key == "web/b"
    assert trace.source is not None
    assert (trace.source.uri, trace.source.size) == (str(raw), raw.stat().st_size)
    assert trace.source.version == f"xxh3:{xxhash.xxh3_128_hexdigest(raw.read_bytes())}"
    assert trace.content == trace.recorded.content == hash_of(tmp_path / "out/tars/web/b.tar")
    assert trace.as_recorded
    assert list(trace.records) == list(stage_dag(settings))
    assert trace.records["filtered"].settings["settings"]["min_sharpness"] == 100  # type: ignore[index]
    assert (trace.remade, trace.status) == ([], "complete")


def test_a_copied_tar_is_found_by_its_content(settings: Settings, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere.tar"
    shutil.copy(tmp_path / "out/tars/web/b.tar", copy)
    trace = trace_tar(str(copy), settings)
    assert (trace.key, trace.uri, trace.as_recorded) == ("web/b", str(copy), True)


def test_other_bytes_are_reported(settings: Settings, tmp_path: Path) -> None:
    tar = tmp_path / "out/tars/a.tar"
    content = bytearray(tar.read_bytes())
    content[1000] ^= 1
    tar.write_bytes(content)
    trace = trace_tar(str(tar), settings)
    assert not trace.as_recorded
    assert trace.content == hash_of(tar)


def test_the_source_is_the_raw_shard_that_the_tar_was_made_from(settings: Settings, tmp_path: Path) -> None:
    tar = tmp_path / "out/tars/a.tar"
    before = trace_tar(str(tar), settings).source
    good_shard(tmp_path / "raw/a.tar", seed=5)
    assert trace_tar(str(tar), settings).status == "normalized stale: raw_shards changed"
    take_through(stage_dag(settings)["normalized"], "a", settings)
    trace = trace_tar(str(tar), settings)
    assert trace.source == before
    assert trace.remade == ["normalized"]
    assert trace.status == f"{STAGES[1]} stale: normalized changed"
    (tmp_path / "raw/a.tar").unlink()
    assert "it was moved or deleted" in trace_tar(str(tar), settings).status


@pytest.fixture
def exported(tmp_path: Path) -> Settings:
    """The settings of a project with a shard whose images were exported, two a tar."""
    settings = project(tmp_path, "[export]\nenabled = true\nimages_per_tar = 2\n")
    good_shard(tmp_path / "raw/web/b.tar", seed=3)
    take_all(settings, "web/b")
    return settings


def test_a_tar_of_exported_images(exported: Settings, tmp_path: Path) -> None:
    first, second = sorted((tmp_path / "out/images/web/b").glob("*.tar"))
    shutil.copy(second, tmp_path / "copy.tar")
    for tar, of in ((first, first), (second, second), (tmp_path / "copy.tar", second)):
        trace = trace_tar(str(tar), exported)
        assert (trace.key, trace.stage, trace.uri) == ("web/b", "image_export", str(tar))
        assert trace.recorded.uri == str(of)
        assert trace.content == trace.recorded.content == hash_of(of)
        assert (list(trace.records)[-1], trace.remade, trace.status) == ("image_export", [], "complete")
    # also where the present settings export nothing
    assert list(trace_tar(str(first), project(tmp_path)).records) == [*stage_dag(exported)]
    second.write_bytes(first.read_bytes())
    assert not trace_tar(str(second), exported).as_recorded


def test_a_later_export_says_nothing_about_the_final_tar(exported: Settings, tmp_path: Path) -> None:
    trace = trace_tar(str(tmp_path / "out/tars/web/b.tar"), exported)
    assert (trace.stage, list(trace.records)[-1]) == ("final_tars", "final_tars")
    assert trace.status == "complete"  # of the shard, whose images are exported


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("tars/web/b.tar", ("web/b", "final_tars")),
        (f"images/web/b/images-{'0' * 16}-000001.tar", ("web/b", "image_export")),
        (f"images/images-{'0' * 16}-000001.tar", None),
        ("images/web/b/other.tar", None),
        ("tars/b.parquet", None),
        ("filtered/b.tar", None),
        ("../raw/b.tar", None),
    ],
)
def test_the_place_of_a_tar(tmp_path: Path, path: str, place: tuple[str, str] | None) -> None:
    settings = project(tmp_path)
    assert tar_at(f"{settings.storage.output_root}/{path}", settings.storage) == place


def test_a_tar_without_a_record_is_an_error(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(ShardError, match=r"raw/a\.tar \(xxh3:[0-9a-f]{32}\): no record describes it"):
        trace_tar(str(tmp_path / "raw/a.tar"), settings)
    (tmp_path / "out/records/final_tars/a.json").unlink()
    with pytest.raises(ShardError, match="no record describes it"):
        trace_tar(str(tmp_path / "out/tars/a.tar"), settings)
    with pytest.raises(StorageError, match=r"cannot read .*none\.tar"):
        trace_tar(str(tmp_path / "none.tar"), settings)


def test_a_part_of_a_final_tar_that_was_split(tmp_path: Path) -> None:
    settings = project(tmp_path, "[final_tars]\nmax_samples_per_tar = 1\n")
    good_shard(tmp_path / "raw/a.tar")
    take_all(settings, "a")
    part = tmp_path / "out/tars/a~00001.tar"
    trace = trace_tar(str(part), settings)
    assert (trace.key, trace.recorded.uri, trace.as_recorded, trace.status) == ("a", str(part), True, "complete")
    copied = shutil.copy(part, tmp_path / "elsewhere.tar")
    assert trace_tar(str(copied), settings).recorded == trace.recorded
    # one that an earlier split has left
    shutil.copy(tmp_path / "raw/a.tar", tmp_path / "out/tars/a~00007.tar")
    with pytest.raises(ShardError, match=r"a~00007\.tar .* is no tar of final_tars of shard a, .*\{00000\.\.00002}"):
        trace_tar(str(tmp_path / "out/tars/a~00007.tar"), settings)
