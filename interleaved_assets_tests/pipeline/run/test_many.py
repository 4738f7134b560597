import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from interleaved_assets.model.errors import InterleavedError, ShardTimeout
from interleaved_assets.pipeline.run import threads as pool
from interleaved_assets.pipeline.run.many import Made, _Work, take_many
from interleaved_assets.pipeline.run.record import RAW_SHARDS
from interleaved_assets.pipeline.run.stage import ShardTask, Stage, Work
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import good_shard, project


def test_a_hanging_shard_fails_at_its_time_limit_without_an_orchestrator_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "TICK_S", 0.02)
    settings = project(tmp_path, "[run]\nmax_shard_seconds = 0.2\n")
    go_on = threading.Event()

    def hang(shard: ShardTask) -> Work:
        go_on.wait(60)
        raise AssertionError(shard.key)

    for key in "ab":
        good_shard(tmp_path / "raw" / f"{key}.tar")
    stage = Stage("measured", (RAW_SHARDS,), 1, settings=lambda _: {}, run=hang)
    found = {one.key: one.result for one in take_many(stage, ["a", "b"], settings, then=str, threads=1)}
    go_on.set()
    assert [type(found[key]) for key in "ab"] == [ShardTimeout, ShardTimeout]


def test_of_shards_taken_together_a_hanging_one_fails_on_a_worker_and_those_after_it_are_taken_by_another_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "TICK_S", 0.02)
    settings = project(tmp_path, "[run]\nmax_shard_seconds = 3\n")
    go_on = threading.Event()
    calls: list[list[str]] = []

    def together(shards: Iterator[ShardTask], _: Settings) -> Iterator[tuple[str, Work | InterleavedError]]:
        given = list(shards)
        calls.append([shard.key for shard in given])
        for shard in given:
            if shard.key == "b":
                go_on.wait(60)
            yield shard.key, Work(outputs={}, data_version="1")

    for key in "abcd":
        good_shard(tmp_path / "raw" / f"{key}.tar")
    stage = Stage("measured", (RAW_SHARDS,), 1, settings=lambda _: {}, together=together)
    found = dict(filter(None, _Work(stage, settings, str).on_worker("abcd")))
    go_on.set()
    assert calls == [["a", "b", "c", "d"], ["c", "d"]]
    assert isinstance(found["b"], ShardTimeout)
    assert "shard b: measured was stopped because" in str(found["b"])
    assert [isinstance(found[key], Made) for key in "acd"] == [True] * 3
