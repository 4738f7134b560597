"""Shards whose names are no safe keys: all of them go the whole way in one run, and their outputs are found again."""

import io
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import xxhash
from dagster import DagsterInstance

from interleaved_assets.io import InterleavedWebdatasetReader
from interleaved_assets.io.storage import open_input
from interleaved_assets.pipeline.raw.keys import MAX_KEY_BYTES
from interleaved_assets.pipeline.raw.listing import list_raw_shards
from interleaved_assets.pipeline.run.stored_records import read_records
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status.status import CurrentStages
from interleaved_assets.settings import Settings, StorageSettings
from interleaved_assets_tests.defs.runs import STAGES, Watcher, files, materialized, run_chain
from interleaved_assets_tests.documents import document, good_shard, project, sharp_image, write_shard
from interleaved_assets_tests.projects import take_all
from interleaved_assets_tests.s3 import S3Server

DEEP = "/".join(["f" * 90] * 3) + "/deep.tar"
"""A path of nearly 300 characters."""
NAMES = (
    " with space .tar",
    "%20%2F.tar",
    "a,b;c:d&e=f+g...h.tar",
    'dots.../-it\'s "quoted" <b>{x}$HOME.tar',
    "日本語 \U0001f600 \u00e9.tar",
    "日本語 \U0001f600 e\u0301.tar",  # looks the same as the one before
    "~.tar",
    "[ab].tar",
    "a.tar",  # what [ab] would match as a glob
    "*.tar",
    "q?/hash#1.tar",
    "a::b.tar",
    "new\nline\t.tar",
    "a.tar.gz.tar",
    "\u00fc" * 124 + ".tar",  # 252 bytes: no room for an ending of ours
    DEEP,
)


def small_shard(path: Path, name: str) -> Path:
    """One document that names its shard, and one picture."""
    return write_shard(path, {"doc": document(f"this is {name}", sharp_image(1), "the end")})


def goes_the_whole_way(settings: Settings, names: Sequence[str], instance: DagsterInstance) -> list[str]:
    """Watched, run and read back; gives the keys."""
    watcher = Watcher(instance, settings)
    watcher.tick()
    keys = {shard.key: shard for shard in list_raw_shards(settings.storage)}
    assert sorted(watcher.observed) == sorted(keys)
    assert len(keys) == len(names)
    ran = run_chain(instance, settings, watcher.observed)
    assert ran.success, ran
    found_names = set()
    for key, raw in keys.items():
        assert len(key) <= MAX_KEY_BYTES
        assert not set(key) - set(map(chr, range(33, 127))), "a key is printable ASCII"
        records = read_records(settings.storage.shard(key), stage_dag(settings))
        assert tuple(records) == tuple(stage_dag(settings))
        assert not CurrentStages.of(settings).not_current(records, raw)
        assert records["normalized"].source is not None
        assert records["normalized"].source.uri == raw.uri
        for record in records.values():
            for output in record.outputs.values():
                with open_input(output.uri, settings.storage.options) as file:
                    assert xxhash.xxh3_128_hexdigest(file.read()) == output.checksum
        with open_input(records["filtered"].outputs["rows"].uri, settings.storage.options) as file:
            rows = pq.read_table(io.BytesIO(file.read()))
        texts = [text for text in rows["text_content"].to_pylist() if text]
        assert texts[1] == "the end"
        found_names.add(texts[0].removeprefix("this is "))
        # what lies where the record says is what is published under this key
        assert records["final_tars"].outputs["rows"].uri == f"{settings.storage.output_root}/tars/{key}.tar"
    assert found_names == set(names)
    for asset in STAGES:
        assert materialized(instance, asset) == set(keys)
    # nothing is new, and nothing is done again
    assert watcher.tick() == f"{len(names)} unchanged"
    return list(keys)


def test_local_names(tmp_path: Path, instance: DagsterInstance) -> None:
    settings = project(tmp_path, "[watch]\nquiet_seconds = 0\n")
    names = (*NAMES, "back\\slash.tar")
    for name in names:
        small_shard(tmp_path / "raw" / name, name)
    keys = goes_the_whole_way(settings, names, instance)
    for key in keys:
        (batch,) = InterleavedWebdatasetReader(f"{settings.storage.output_root}/tars/{key}.tar")
        assert batch.count(modality="image") == 1
    before = files(tmp_path / "out")
    assert not [path for path in before if path.endswith(".tmp")]
    for key in keys:
        take_all(settings, key)
    assert files(tmp_path / "out") == before


@pytest.mark.system
@pytest.mark.parametrize("chosen", [NAMES[3:6], NAMES[1::2]], ids=["few", "many"])
def test_names_in_a_bucket(
    tmp_path: Path, s3_server: S3Server, bucket: str, instance: DagsterInstance, chosen: Sequence[str]
) -> None:
    options = s3_server.storage_options
    storage = StorageSettings(raw_root=f"{bucket}/raw", output_root=f"{bucket}/out", options=options)
    settings = project(tmp_path, "[watch]\nquiet_seconds = 0\n").model_copy(update={"storage": storage})
    # in a bucket a shard and a folder may have the same name
    names = (*chosen, "same.tar", "same.tar/below.tar")
    for name in names:
        s3_server.fs.pipe_file(f"{bucket}/raw/{name}", small_shard(tmp_path / "one.tar", name).read_bytes())
    goes_the_whole_way(settings, names, instance)


def test_a_folder_in_place_of_an_output_fails_only_that_shard(tmp_path: Path, instance: DagsterInstance) -> None:
    """``a.parquet/b.tar`` needs a folder for its output where ``a.tar`` needs a file."""
    # one after the other: else it is chance which of the two comes first and takes the name
    settings = project(tmp_path, "[run]\nparallel_shards = 1\n[watch]\nquiet_seconds = 0\n")
    for number, name in enumerate(("a.parquet/b", "a", "c")):
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=number)
    watcher = Watcher(instance, settings)
    watcher.tick()
    ran = run_chain(instance, settings, watcher.observed)
    assert not ran.success
    assert materialized(instance, "final_tars") == {"a.parquet/b", "c"}
    message = f"normalized, shard a: cannot write {tmp_path}/out/dropped/normalized/a.parquet: Is a directory. A "
    assert ran.errors[0].startswith(message)
    left = [path for path in files(tmp_path / "out") if path.endswith((".tmp", "/a.json", "/a.tar"))]
    assert left == ["failures/normalized/a.json"]


def test_a_name_that_is_not_utf_8_keeps_no_other_shard_waiting(tmp_path: Path, instance: DagsterInstance) -> None:
    settings = project(tmp_path, "[watch]\nquiet_seconds = 0\n")
    small_shard(tmp_path / "raw" / "a.tar", "a")
    small_shard(tmp_path / "raw" / os.fsdecode(b"caf\xe9.tar"), "cafe")
    watcher = Watcher(instance, settings)
    watcher.tick()
    assert watcher.observed == ["a"]
    ran = run_chain(instance, settings, ["a", "caf%E9"])
    assert rf"{tmp_path}/raw/caf\udce9.tar: the file's name is not UTF-8; rename it" in ran.summary
    assert materialized(instance, "final_tars") == {"a"}
