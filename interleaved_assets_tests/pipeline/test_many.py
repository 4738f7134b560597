import itertools
import threading
from pathlib import Path

import pytest

from interleaved_assets.model.errors import ShardTimeout
from interleaved_assets.pipeline.many import as_completed, take_many
from interleaved_assets.pipeline.pools import threads as pool
from interleaved_assets.pipeline.record import RAW_SHARDS
from interleaved_assets.pipeline.stage import ShardTask, Stage, Work
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


def test_each_item_comes_with_its_result_or_its_error() -> None:
    def work(number: int, _: object) -> float:
        return 6 / number

    found = dict(as_completed(work, [3, 0, 2], threads=2))
    assert (found[3], found[2]) == (2, 3)
    assert isinstance(found[0], ZeroDivisionError)


def test_work_is_told_when_nobody_waits_for_it() -> None:
    begun, ended = threading.Semaphore(0), threading.Semaphore(0)

    def work(number: int, stopped: object) -> int:
        if number:
            begun.release()
            assert callable(stopped)
            while not stopped():
                pass
            ended.release()
        return number

    results = as_completed(work, itertools.chain([0, 1], [1] * 5), threads=2)
    assert next(results) == (0, 0)
    assert begun.acquire(timeout=60)
    results.close()  # type: ignore[attr-defined]
    assert ended.acquire(timeout=60)


def test_what_is_no_exception_is_raised() -> None:
    def work(_: int, __: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(as_completed(work, [1], threads=1))
