import math
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

import pytest

from interleaved_assets.model.errors import ShardTimeout
from interleaved_assets.pipeline.run import threads
from interleaved_assets.pipeline.run.threads import on_threads


def named(item: object) -> tuple[str, str]:
    return str(item), "work"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "TICK_S", 0.02)


@dataclass
class Clock:
    """Stands in for the clock: how long a shard takes does not depend on how busy the machine is."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    return clock


@pytest.mark.parametrize("threads", [1, 2, 9])
def test_each_item_comes_with_its_result_or_its_error(threads: int) -> None:
    found = dict(filter(None, on_threads(lambda number: 6 / number, [3, 0, 2], named=named, threads=threads)))
    assert (found.pop(3), found.pop(2)) == (2, 3)
    assert isinstance(found.pop(0), ZeroDivisionError)
    assert found == {}


def test_no_items() -> None:
    assert list(on_threads(str, [], named=named, threads=2)) == []


def test_a_worker_begins_the_next_item_while_the_caller_looks_at_a_result() -> None:
    second_begun = threading.Event()

    def work(number: int) -> int:
        if number == 2:
            second_begun.set()
        return number

    found = filter(None, on_threads(work, [1, 2], named=named, threads=1))
    assert next(found) == (1, 1)
    assert second_begun.wait(60)
    assert list(found) == [(2, 2)]


def test_work_is_told_when_nobody_waits_for_it() -> None:
    begun, told, ended = threading.Semaphore(0), threading.Semaphore(0), threading.Event()

    def work(number: int) -> int:
        if number:
            begun.release()
            assert ended.wait(60)
            told.release()
        return number

    results = on_threads(work, [0, *[1] * 6], named=named, threads=2, ended=ended)
    assert next(results) == (0, 0)
    assert begun.acquire(timeout=60)
    results.close()  # type: ignore[attr-defined]
    assert told.acquire(timeout=60)


def test_what_is_no_exception_is_raised() -> None:
    def work(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(on_threads(work, [1], named=named, threads=1))


@pytest.mark.parametrize("limit_s", [math.inf, 1e12])
def test_an_interrupted_caller_waits_for_what_is_in_work_and_begins_nothing_more(limit_s: float) -> None:
    begun, done = threading.Event(), []

    def work(number: int) -> None:
        if number == 0:
            assert begun.wait(60)
            raise KeyboardInterrupt
        begun.set()
        time.sleep(0.05)
        done.append(number)

    with pytest.raises(KeyboardInterrupt):
        list(on_threads(work, [0, 1, 2], named=named, threads=2, limit_s=limit_s))
    assert done == [1]


def test_a_hanging_shard_fails_and_the_others_go_on_with_as_many_threads(clock: Clock) -> None:
    go_on = threading.Event()

    def work(key: str) -> str:
        if key == "hanging":
            clock.now += 1
            assert go_on.wait(60)
        return key

    keys = ["hanging", "a", "b"]
    arrivals = list(on_threads(work, keys, named=named, threads=1, limit_s=0.2))
    assert None in arrivals  # the caller could report progress
    found = [arrival for arrival in arrivals if arrival]
    assert [key for key, _ in found] == keys
    assert isinstance(found[0][1], ShardTimeout)
    assert str(found[0][1]).startswith(
        "shard hanging: work was stopped because it took longer than run.max_shard_seconds = 0.2: "
    )
    assert [result for _, result in found[1:]] == ["a", "b"]
    go_on.set()


def test_the_time_limit_is_that_of_the_shard_and_not_of_its_wait(clock: Clock) -> None:
    turns = threading.Semaphore()

    def work(key: str) -> str:
        assert turns.acquire(timeout=60)
        clock.now += 0.4
        return key

    keys, found = [str(number) for number in range(8)], []
    for arrival in on_threads(work, keys, named=named, threads=1, limit_s=0.5):
        if arrival:
            found.append(arrival[1])
            turns.release()
    assert found == keys


_HANGING = """
import threading
from interleaved_assets.io.rows.batches import prefetch
from interleaved_assets.pipeline.run.threads import on_threads

def work(key):
    if key == "hanging":
        return next(prefetch(threading.Event().wait() for _ in range(2)))
    return key

shards = on_threads(work, ["hanging", "a"], named=lambda key: (key, "work"), threads=1, limit_s=0.3)
print([found[0] for found in shards if found])
"""


_TERMINATED = """
import os, signal, sys, threading
from interleaved_assets.pipeline.run.threads import on_threads

class Terminated(BaseException):
    pass

def terminate(*_):
    raise Terminated

def work(key):
    if key == "hanging":
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait()

signal.signal(signal.SIGTERM, terminate)
shards = on_threads(work, ["hanging", "a"], named=lambda key: (key, "work"), threads=1, limit_s=1)
try:
    if sys.argv[1] == "waiting":
        next(shards)
        next(shards)
    else:  # the run is terminated while it logs a shard, so that the shards in work are left behind
        next(shards)
        threading.Event().wait()
except Terminated:
    print("terminated")
"""


@pytest.fixture(scope="module")
def ended() -> dict[str, tuple[int, str, str]]:
    """Exit code, output and errors of processes with a thread that hangs. All run at once, since each waits for it."""
    programs = {"hanging": [_HANGING], "waiting": [_TERMINATED, "waiting"], "logging": [_TERMINATED, "logging"]}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = {
        name: subprocess.Popen([sys.executable, "-c", *program], text=True, **pipes)
        for name, program in programs.items()
    }
    said = {name: process.communicate(timeout=300) for name, process in running.items()}
    return {name: (process.returncode, *said[name]) for name, process in running.items()}


@pytest.mark.parametrize("where", ["waiting", "logging"])
def test_a_terminated_process_ends_once_a_hanging_shard_has_reached_its_limit(
    where: str, ended: dict[str, tuple[int, str, str]]
) -> None:
    assert ended[where] == (0, "terminated\n", "")


def test_the_process_ends_with_a_thread_that_hangs(ended: dict[str, tuple[int, str, str]]) -> None:
    assert ended["hanging"] == (0, "['hanging', 'a']\n", "")


def test_items_that_follow_from_one_that_is_done_begin_before_those_that_wait() -> None:
    order: list[int] = []

    def after(item: int, result: int | Exception) -> list[int]:
        assert result == item
        return [item + 10] if item < 20 else []

    found = list(on_threads(lambda item: order.append(item) or item, [1, 2], named=named, threads=1, after=after))
    assert order == [1, 11, 21, 2, 12, 22]
    assert sorted(one[0] for one in found if one is not None) == [1, 2, 11, 12, 21, 22]
