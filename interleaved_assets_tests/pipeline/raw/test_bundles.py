"""Small files of a folder that form shards together."""

import gzip
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

from interleaved_assets.cli import main
from interleaved_assets.io import read_shard
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.model.errors import IncompleteShard, SettingsError, ShardError, StorageError
from interleaved_assets.pipeline.raw.bundles import bundles_of
from interleaved_assets.pipeline.raw.listing import find_raw_shard, list_raw_files, list_raw_shards, raw_content_version
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.stages import normalized
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status.dataset_status import read_dataset_status
from interleaved_assets.pipeline.status.vanished import vanished_shards
from interleaved_assets.settings import Settings
from interleaved_assets_tests.defects import stand_in
from interleaved_assets_tests.documents import good_shard, project, sharp_image
from interleaved_assets_tests.io.pdfs import text, write_pdf
from interleaved_assets_tests.s3 import S3Server

BUNDLES = "bundles = {images = 2, pdf = 3}\n[selection]\nmin_sharpness = 0\n"


def write_images(folder: Path, count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"{number:03}.png").write_bytes(sharp_image(number))
        (folder / f"{number:03}.txt").write_text(f"caption {number}", encoding="utf-8")
        (folder / f"{number:03}.json").write_text(json.dumps({"url": f"https://a.example/{number}", "n": number}))


def through(settings: Settings, keys: list[str]) -> None:
    for stage in stage_dag(settings).values():
        for key in keys:
            take_through(stage, key, settings)


def states(settings: Settings) -> dict[str, str]:
    dataset = read_dataset_status(settings)
    return {shard.key: shard.status.text for shard in dataset.shards()}


@pytest.mark.system
def test_a_hundred_thousand_files_are_grouped_within_seconds_and_another_one_changes_one_bundle(tmp_path: Path) -> None:
    settings = project(tmp_path, "bundles = {pdf = 64}\n")
    names = [f"crawl/{number:06}.pdf" for number in range(100_000)]
    began = time.process_time()
    found = bundles_of(names, settings.storage)
    assert time.process_time() - began < 10
    assert sorted(path for files in found.values() for path in files) == names
    assert set(found) == {f"crawl/pdf-{number:02}-of-64" for number in range(64)}
    sizes = [len(files) for files in found.values()]
    assert min(sizes) > 1300
    assert max(sizes) < 1800
    assert bundles_of(reversed(names), settings.storage) == found
    more = bundles_of([*names, "crawl/new.pdf"], settings.storage)
    assert [path for path in found if more[path] != found[path]] == ["crawl/pdf-56-of-64"]


def test_a_folder_of_images_with_captions_is_curated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = project(tmp_path, BUNDLES)
    write_images(tmp_path / "raw/photos", 12)
    (tmp_path / "raw/photos/alone.txt").write_text("of no image")
    good_shard(tmp_path / "raw/photos/shard.tar")
    listing = list_raw_files(settings.storage)
    keys = [shard.key for shard in listing.shards]
    assert keys == ["photos/images-0-of-2", "photos/images-1-of-2", "photos/shard"]
    assert listing.ignored == ["photos/alone.txt"]
    through(settings, keys)
    assert set(states(settings).values()) == {"complete"}
    rows = []
    for key in keys[:2]:
        rows += pa.concat_tables(read_shard(str(tmp_path / f"out/tars/{key}.tar"))).to_pylist()
    assert Counter(row["modality"] for row in rows) == {"metadata": 12, "image": 12, "text": 12}
    of_one = sorted((row for row in rows if row["sample_id"] == "007"), key=lambda row: row["position"])
    assert (of_one[0]["url"], of_one[0]["n"]) == ("https://a.example/7", 7)
    assert of_one[1]["binary_content"] == sharp_image(7)
    assert of_one[2]["text_content"] == "caption 7"
    capsys.readouterr()
    assert main(["--settings", str(tmp_path / "interleaved.toml"), "trace", "007", "--json"]) == 0
    (traced,) = json.loads(capsys.readouterr().out)["shards"]
    assert traced["source"] == str(tmp_path / "raw" / traced["shard"])


def test_another_file_makes_one_shard_stale_and_a_bundle_without_files_vanishes(tmp_path: Path) -> None:
    settings = project(tmp_path, BUNDLES)
    write_images(tmp_path / "raw", 12)
    keys = [shard.key for shard in list_raw_shards(settings.storage)]
    through(settings, keys)
    assert set(states(settings).values()) == {"complete"}
    (tmp_path / "raw/new.png").write_bytes(sharp_image(99))
    assert sorted(text.partition(":")[0] for text in states(settings).values()) == ["complete", "normalized stale"]
    through(settings, keys)
    assert set(states(settings).values()) == {"complete"}
    (tmp_path / "raw/005.txt").write_text("another caption", encoding="utf-8")
    assert sorted(text.partition(":")[0] for text in states(settings).values()) == ["complete", "normalized stale"]
    for file in (tmp_path / "raw").iterdir():
        file.unlink()
    good_shard(tmp_path / "raw/a.tar")
    assert vanished_shards(settings.storage) == keys


def test_a_bundle_lists_its_folder_once_and_is_stale_after_a_file_that_was_added_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = project(tmp_path, BUNDLES)
    write_images(tmp_path / "raw", 12)
    key, other = [shard.key for shard in list_raw_shards(settings.storage)]
    names = [f"new-{number}" for number in range(9)]
    (added, *_) = (name for name in names if key in bundles_of([f"{name}.png"], settings.storage))

    read = normalized.read_options

    def meanwhile(action: Callable[[], object]) -> None:
        """Do ``action`` once the folder was listed, and before the files are read."""

        def act(uri: str, settings: Settings, notes: Counter[str]) -> ReadOptions:
            action()
            return read(uri, settings, notes)

        stand_in(monkeypatch, normalized, "read_options", act)

    listed: list[str] = []
    ls = LocalFileSystem.ls

    def counted(self: LocalFileSystem, path: str, *arguments: object, **named: object) -> object:
        listed.append(path)
        return ls(self, path, *arguments, **named)

    monkeypatch.setattr(LocalFileSystem, "ls", counted)
    stage = stage_dag(settings)["normalized"]
    meanwhile(lambda: (tmp_path / f"raw/{added}.png").write_bytes(sharp_image(99)))
    take_through(stage, key, settings)
    assert listed == [str(tmp_path / "raw")]
    rows = pq.read_table(tmp_path / f"out/normalized/{key}.parquet")["sample_id"].unique().to_pylist()
    assert added not in rows
    meanwhile(lambda: None)
    assert not take_through(stage, key, settings).unchanged
    assert added in pq.read_table(tmp_path / f"out/normalized/{key}.parquet")["sample_id"].to_pylist()

    def changes() -> None:
        (tmp_path / "raw/new.txt").write_text("of no image")
        for file in (tmp_path / "raw").glob("0*.png"):
            file.write_bytes(sharp_image(200))

    meanwhile(changes)
    with pytest.raises(ShardError, match=rf"{other} changed while it was read; materialize it again"):
        take_through(stage, other, settings)
    meanwhile(lambda: [file.unlink() for file in (tmp_path / "raw").glob("0*.txt")])
    with pytest.raises((ShardError, StorageError), match=r"changed while it was read|cannot read .*\.txt"):
        take_through(stage, other, settings)


def test_pieces_of_jsonl_form_one_shard_with_the_columns_of_all(tmp_path: Path) -> None:
    settings = project(tmp_path, 'bundles = {jsonl = 1}\n[errors]\non_materialize_error = "warn"\n')
    (tmp_path / "raw").mkdir(exist_ok=True)
    for number in range(3):
        record = {"texts": [f"Words of piece {number}"], "images": [None], f"column_{number}": number}
        (tmp_path / f"raw/{number}.jsonl").write_text(json.dumps(record) + "\n" + "no JSON\n" * (number == 1))
    piece = json.dumps({"texts": ["Words of a packed piece"], "images": [None], "url": "https://a.example/"})
    (tmp_path / "raw/3.jsonl.gz").write_bytes(gzip.compress(piece.encode()))
    take_through(stage_dag(settings)["normalized"], "jsonl-0-of-1", settings)
    rows = pq.read_table(tmp_path / "out/normalized/jsonl-0-of-1.parquet").to_pylist()
    documents = {row["sample_id"]: row for row in rows if row["modality"] == "metadata"}
    assert list(documents) == ["0.jsonl:1", "1.jsonl:1", "1.jsonl:2", "2.jsonl:1", "https://a.example/"]
    assert [documents[f"{number}.jsonl:1"][f"column_{number}"] for number in range(3)] == [0, 1, 2]
    assert documents["1.jsonl:2"]["materialize_error"].startswith("invalid_json")
    assert [row["text_content"] for row in rows if row["modality"] == "text"][-1] == "Words of a packed piece"
    (tmp_path / "raw/3.jsonl.gz").write_bytes(gzip.compress(piece.encode())[:-12])
    with pytest.raises(IncompleteShard, match=r"3\.jsonl\.gz: truncated_shard"):
        take_through(stage_dag(settings)["normalized"], "jsonl-0-of-1", settings)


def test_a_pdf_that_cannot_be_read_is_an_error_of_its_document(tmp_path: Path) -> None:
    settings = project(tmp_path, 'bundles = {pdf = 1}\n[errors]\non_materialize_error = "drop_row"\n')
    for number in range(3):
        write_pdf(tmp_path / f"{number}.pdf", [text(72, 700, f"Words of file {number}")])
        (tmp_path / f"raw/{number}.pdf").symlink_to(tmp_path / f"{number}.pdf")
    (tmp_path / "raw/broken.pdf").write_bytes(b"%PDF-1.7 and nothing more")
    through(settings, ["pdf-0-of-1"])
    assert states(settings) == {"pdf-0-of-1": "complete"}
    rows = pa.concat_tables(read_shard(str(tmp_path / "out/tars/pdf-0-of-1.tar"))).to_pylist()
    assert {row["sample_id"] for row in rows} == {"0.pdf", "1.pdf", "2.pdf"}
    (dropped,) = pq.read_table(tmp_path / "out/dropped/normalized/pdf-0-of-1.parquet").to_pylist()
    assert (dropped["sample_id"], dropped["reason"]) == ("broken.pdf", "unreadable_source")


def test_a_format_whose_files_cannot_be_bundled_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="files of tar cannot be bundled; those of jsonl, pdf, images can"):
        project(tmp_path, "bundles = {tar = 4}\n")


def test_a_bundle_in_a_bucket_is_as_it_is_now_whatever_was_listed(
    tmp_path: Path, s3_server: S3Server, bucket: str
) -> None:
    storage = project(tmp_path, BUNDLES).storage
    storage = storage.model_copy(update={"raw_root": f"{bucket}/raw", "options": s3_server.storage_options})
    stamps = set()
    for number in range(3):
        s3_server.fs.pipe_file(f"{bucket}/raw/photos/{number}.png", sharp_image(number))
        listed = list(list_raw_shards(storage))
        for shard in listed:
            found = find_raw_shard(shard.key, storage)
            assert found == shard
            assert raw_content_version(found, storage) == shard.stamp
        stamps.add(tuple(shard.stamp for shard in listed))
    assert len(stamps) == 3
