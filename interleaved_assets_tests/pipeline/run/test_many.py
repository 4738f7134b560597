import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from interleaved_assets.model.errors import OptionError, ShardTimeout, StorageUnavailable, WorkerLost
from interleaved_assets.pipeline.run import shard_map
from interleaved_assets.pipeline.run.many import run_shards, take_many
from interleaved_assets.pipeline.run.record import RAW_SHARDS
from interleaved_assets.pipeline.run.stage import ShardTask, Stage, StageOutcome, Work
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.scoring.protocol.registry import unregister_scorer
from interleaved_assets_tests.defects import stand_in
from interleaved_assets_tests.documents import good_shard, project, stages_before


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, shard_map, "TICK_S", 0.02)


def test_a_hanging_shard_fails_at_its_time_limit_without_an_orchestrator_too(tmp_path: Path) -> None:
    settings = project(tmp_path, "[run]\nmax_shard_seconds = 0.2\n")
    go_on = threading.Event()

    def hang(shard: ShardTask) -> Work:
        go_on.wait(60)
        raise AssertionError(shard.key)

    for key in "ab":
        good_shard(tmp_path / "raw" / f"{key}.tar")
    stage = Stage("measured", (RAW_SHARDS,), 1, settings=lambda _: {}, run=hang)
    found = {one.key: one.result for one in take_many([stage], ["a", "b"], settings, then=str, jobs=1)}
    go_on.set()
    assert [type(found[key]) for key in "ab"] == [ShardTimeout, ShardTimeout]


def test_pauses_before_another_try_grow_up_to_half_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = project(tmp_path, "[run]\nstorage_tries = 9\n")
    good_shard(tmp_path / "raw/a.tar")
    tried: list[str] = []
    slept: list[float] = []

    def away(shard: ShardTask) -> Work:
        tried.append(shard.key)
        raise StorageUnavailable("timed out")

    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: slept.append(seconds) if seconds >= 1 else sleep(seconds))
    stage = Stage("measured", (RAW_SHARDS,), 1, settings=lambda _: {}, run=away)
    (one,) = take_many([stage], ["a"], settings, then=str)
    assert isinstance(one.result, StorageUnavailable)
    assert (tried, slept) == (["a"] * 9, [1, 2, 4, 8, 16, 30, 30, 30])


def test_what_is_no_key_is_refused_by_every_stage_and_leaves_no_file(tmp_path: Path) -> None:
    settings = project(tmp_path)
    good_shard(tmp_path / "raw/a.tar")
    (tmp_path / "x.tar").write_bytes((tmp_path / "raw/a.tar").read_bytes())
    for _ in run_shards(["a"], stage_dag(settings).values(), settings, then=str, jobs=1):
        pass
    before = sorted(tmp_path.rglob("*"))
    for stage in stage_dag(settings).values():
        for one in take_many([stage], ["../x", "./a"], settings, then=str, jobs=1):
            assert isinstance(one.result, OptionError)
            assert str(one.result).startswith(f"'{one.key}' is not the key of a shard: keys are as in the UI")
    assert sorted(tmp_path.rglob("*")) == before


def two_stages(first: Callable[[ShardTask], Work], second: Callable[[ShardTask], Work]) -> list[Stage]:
    return [
        Stage(name, (RAW_SHARDS,), 1, settings=lambda _: {}, run=run)
        for name, run in (("first", first), ("second", second))
    ]


def nothing_made(shard: ShardTask) -> Work:
    return Work(outputs={}, data_version="1")


def wait_for(file: Path) -> None:
    for _ in range(600):
        if file.exists():
            return
        time.sleep(0.1)
    raise AssertionError(file)


def test_a_shard_goes_on_to_its_next_stage_while_others_are_at_an_earlier_one(tmp_path: Path) -> None:
    settings = project(tmp_path)
    for key in "abc":
        good_shard(tmp_path / "raw" / f"{key}.tar")

    def first(shard: ShardTask) -> Work:
        if shard.key == "b":
            wait_for(tmp_path / "second of a")  # which a step without the others would never write
        if shard.key == "c":
            raise ValueError("a defect")
        return nothing_made(shard)

    def second(shard: ShardTask) -> Work:
        (tmp_path / f"second of {shard.key}").touch()
        return nothing_made(shard)

    found = [
        (one.key, one.stage, type(one.result))
        for one in run_shards("abc", two_stages(first, second), settings, then=str, jobs=2)
    ]
    assert sorted(found, key=lambda one: one[:2]) == [
        ("a", "first", StageOutcome),
        ("a", "second", StageOutcome),
        ("b", "first", StageOutcome),
        ("b", "second", StageOutcome),
        ("c", "first", ValueError),
    ]


def test_a_shard_that_hangs_or_ends_its_worker_or_meets_no_storage_fails_alone(tmp_path: Path) -> None:
    # a worker pauses before the third try for up to 2 s, which count
    settings = project(tmp_path, "[run]\nmax_shard_seconds = 3\nstorage_tries = 3\n")
    for key in "abcd":
        good_shard(tmp_path / "raw" / f"{key}.tar")

    def second(shard: ShardTask) -> Work:
        if shard.key == "a":
            time.sleep(600)
        if shard.key == "b":
            os.kill(os.getpid(), signal.SIGKILL)
        if shard.key == "c":
            with (tmp_path / "tries").open("a") as tries:
                tries.write("c")
            if (tmp_path / "tries").stat().st_size < 3:
                raise StorageUnavailable("not now")
        return nothing_made(shard)

    found = {
        (one.key, one.stage): one.result
        for one in run_shards("abcd", two_stages(nothing_made, second), settings, then=str, jobs=2)
    }
    assert isinstance(found["a", "second"], ShardTimeout)
    assert "shard a: second was stopped because" in str(found["a", "second"])
    assert isinstance(found["b", "second"], WorkerLost)
    assert "shard b: the process of second ended by signal SIGKILL" in str(found["b", "second"])
    assert (tmp_path / "tries").read_text() == "ccc"
    assert [isinstance(found[key, "second"], StageOutcome) for key in "cd"] == [True, True]
    assert len(found) == 8


def test_so_many_shards_are_in_work_at_once_as_the_setting_says(tmp_path: Path) -> None:
    settings = project(tmp_path, "[run]\nparallel_shards = 3\n")
    for key in "abc":
        good_shard(tmp_path / "raw" / f"{key}.tar")

    def meet(shard: ShardTask) -> Work:
        (tmp_path / shard.key).touch()
        for key in "abc":
            wait_for(tmp_path / key)
        return nothing_made(shard)

    stage = Stage("measured", (RAW_SHARDS,), 1, settings=lambda _: {}, run=meet)
    found = [one.result for one in take_many([stage], "abc", settings, then=str)]
    assert [type(one) for one in found] == [StageOutcome] * 3


def test_a_result_that_cannot_be_sent_is_the_error_of_its_shard(tmp_path: Path) -> None:
    settings = project(tmp_path)
    for key in "ab":
        good_shard(tmp_path / "raw" / f"{key}.tar")
    stage = Stage("measured", (RAW_SHARDS,), 1, settings=lambda _: {}, run=nothing_made)
    found = [str(one.result) for one in take_many([stage], "ab", settings, then=lambda _: threading.Lock())]
    assert sorted(text.partition(":")[0] for text in found) == ["shard a", "shard b"]
    assert all("the result of measured cannot be sent from its worker" in text for text in found)


def test_an_error_that_cannot_be_sent_keeps_its_message(tmp_path: Path) -> None:
    class Refused(Exception):  # pickle makes it anew from its message alone
        def __init__(self, code: int, what: str) -> None:
            super().__init__(f"{what} ({code})")

    def refuse(shard: ShardTask) -> Work:
        raise Refused(7, f"the model refused {shard.key}")

    settings = project(tmp_path)
    for key in "ab":
        good_shard(tmp_path / "raw" / f"{key}.tar")
    stage = Stage("measured", (RAW_SHARDS,), 1, settings=lambda _: {}, run=refuse)
    found = [str(one.result) for one in take_many([stage], "ab", settings, then=str)]
    assert sorted(found) == ["Refused: the model refused a (7)", "Refused: the model refused b (7)"]


def test_a_scorer_of_a_plugin_measures_in_worker_processes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scorer_of_a_plugin.py").write_text(
        "from interleaved_assets.scoring import Scorer, register_scorer\n"
        "register_scorer(Scorer('twice', {'twice': 'double'}, lambda _: lambda image: 2.0 * image.shape[1]))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    settings = project(
        tmp_path, '[plugins]\nmodules = ["scorer_of_a_plugin"]\n[scoring]\nscorers = ["sharpness", "qr", "twice"]\n'
    )
    try:
        for key in "ab":
            good_shard(tmp_path / "raw" / f"{key}.tar")
        stages = [stage_dag(settings)[name] for name in stages_before("document_scores")]
        found = [one.result for one in run_shards("ab", stages, settings, then=str, jobs=2)]
        assert [type(one) for one in found] == [StageOutcome] * 2 * len(stages)
        for key in "ab":
            scores = pq.read_table(tmp_path / f"out/image_scores/{key}.parquet").to_pydict()
            assert scores["twice"] == [2 * width for width in scores["width"]]
    finally:
        unregister_scorer("twice")
        del sys.modules["scorer_of_a_plugin"]
