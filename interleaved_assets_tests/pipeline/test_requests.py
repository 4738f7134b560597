"""How many requests a shard costs in a bucket, on a real S3 server: each of them takes time, and some cost money."""

from collections import Counter, OrderedDict
from pathlib import Path

import pytest

from interleaved_assets.io.storage import atomic_output, open_input
from interleaved_assets.model.errors import ShardError, StorageUnavailable
from interleaved_assets.pipeline import record
from interleaved_assets.pipeline.execute import list_compared, take_through
from interleaved_assets.pipeline.stage import ShardTask, Stage, Work
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings, load_settings
from interleaved_assets_tests.documents import good_shard
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.s3_requests import counted_requests

KEYS = [f"web/{number}" for number in range(4)]
MOST_UNCHANGED = 3
MOST_NEW = 8
"""Beside one request for each part of the data: each file of the shard that a stage reads or writes."""
PARTS = {
    "normalized": ("raw/", "PUT out/normalized/", "PUT out/dropped/"),
    "image_scores": ("GET out/normalized/", "PUT out/image_scores/"),
    "filtered": (
        *("GET out/normalized/", "GET out/image_scores/"),
        *("PUT out/filtered/", "PUT out/dropped/", "PUT out/sample_scores/"),
    ),
    "final_tars": ("GET out/filtered/", "PUT out/tars/", "GET out/tars/", "PUT out/dropped/"),
}


@pytest.fixture
def settings(tmp_path: Path, bucket: str, s3_environment: S3Server) -> Settings:
    (tmp_path / "interleaved.toml").write_text(f'[storage]\nraw_root = "{bucket}/raw"\noutput_root = "{bucket}/out"\n')
    raw = good_shard(tmp_path / "a.tar", seed=1)
    for key in KEYS:
        s3_environment.fs.put_file(str(raw), f"{bucket}/raw/{key}.tar")
    return load_settings(tmp_path / "interleaved.toml")


def run(settings: Settings, keys: list[str]) -> dict[str, list[str]]:
    """The requests of each stage, of a run that takes the shards through one stage after the other."""
    found = {}
    for name, stage in stage_dag(settings).items():
        with counted_requests() as requests:
            listed = list_compared(stage, keys, settings.storage)
            outcomes = [take_through(stage, key, settings, listed) for key in keys]
        assert len(outcomes) == len(keys)
        found[name] = requests
    return found


def test_a_chain_over_a_new_shard(settings: Settings) -> None:
    found = run(settings, KEYS[:1])
    overhead = {name: len(requests) - len(PARTS[name]) for name, requests in found.items()}
    assert sum(overhead.values()) <= MOST_NEW * len(overhead), found
    assert overhead == {"normalized": 5, "image_scores": 5, "filtered": 11, "final_tars": 9}, found


def test_shards_that_are_unchanged(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    run(settings, KEYS)
    monkeypatch.setattr(record, "_recent", OrderedDict())  # as in the process of another run
    found = run(settings, KEYS)
    assert {name: len(requests) for name, requests in found.items() if len(requests) > MOST_UNCHANGED * len(KEYS)} == {}
    listings = {name: sum("list-type=2" in request for request in requests) for name, requests in found.items()}
    # the folders of the records of the stage and its inputs, and of its outputs
    assert listings == {"normalized": 3, "image_scores": 4, "filtered": 6, "final_tars": 4}
    kinds = {name: Counter(request.partition(" ")[0] for request in requests) for name, requests in found.items()}
    # of each shard its raw tar is looked at, and its own record is read: the others are known from the stages before
    assert {name: kind["HEAD"] for name, kind in kinds.items()} == {"normalized": len(KEYS)} | dict.fromkeys(
        ("image_scores", "filtered", "final_tars"), 0
    )
    assert {name: kind["GET"] - listings[name] for name, kind in kinds.items()} == dict.fromkeys(found, len(KEYS))
    assert {name: kind["PUT"] for name, kind in kinds.items()} == dict.fromkeys(found, 0)


def test_a_shard_whose_output_was_replaced_after_the_listing_of_a_run(settings: Settings) -> None:
    stage = stage_dag(settings)["normalized"]
    for key in KEYS:
        take_through(stage, key, settings)
    uri = settings.storage.shard(KEYS[0]).output("normalized")
    with atomic_output(uri, settings.storage.options) as out:
        out.write(b"another")
    listed = list_compared(stage, KEYS, settings.storage)
    assert [take_through(stage, key, settings, listed).unchanged for key in KEYS] == [False, True, True, True]


def test_an_input_that_is_replaced_while_it_is_read(settings: Settings) -> None:
    stages = stage_dag(settings)
    take_through(stages["normalized"], KEYS[0], settings)
    uri = settings.storage.shard(KEYS[0]).output("normalized")

    def replace(shard: ShardTask) -> Work:
        with open_input(uri, shard.options) as file:
            with atomic_output(uri, shard.options) as out:
                out.write(b"another")
            with pytest.raises(StorageUnavailable, match="changed while it was read"):
                file.read()
        raise ShardError("ended")

    stage = Stage("image_scores", ("normalized",), 9, lambda settings: {}, replace)
    with pytest.raises(ShardError, match="ended"):
        take_through(stage, KEYS[0], settings)
    with open_input(uri, settings.storage.options) as file:  # after the attempt whoever opens it has what is there
        assert file.read() == b"another"
