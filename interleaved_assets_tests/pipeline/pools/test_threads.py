import subprocess
import sys
import threading
from dataclasses import dataclass

import pytest

from interleaved_assets.model.errors import ShardTimeout
from interleaved_assets.pipeline.pools import threads
from interleaved_assets.pipeline.pools.threads import on_threads


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "TICK_S", 0.02)


@dataclass
class Clock:
    """Stands in for the module ``time``: how long a shard takes does not depend on how busy the machine is."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(threads, "time", clock := Clock())
    return clock


def test_results_and_errors_arrive_as_they_are_ready() -> None:
    def work(key: str) -> str:
        if key == "b":
            raise KeyError("no")
        return key.upper()

    found = [arrival for arrival in on_threads(work, ["a", "b", "c"], "work", threads=1, limit_s=60) if arrival]
    assert [(one.key, one.host, one.queue_seconds) for one in found] == [(key, "", 0.0) for key in "abc"]
    assert [one.result for one in found[::2]] == ["A", "C"]
    assert isinstance(found[1].result, KeyError)


def test_a_hanging_shard_fails_and_the_others_go_on_with_as_many_threads(clock: Clock) -> None:
    go_on = threading.Event()

    def work(key: str) -> str:
        if key == "hanging":
            clock.now += 1
            assert go_on.wait(60)
        return key

    keys = ["hanging", "a", "b"]
    arrivals = list(on_threads(work, keys, "work", threads=1, limit_s=0.2))
    assert None in arrivals  # the caller could report progress
    found = [arrival for arrival in arrivals if arrival]
    assert [arrival.key for arrival in found] == keys
    assert isinstance(found[0].result, ShardTimeout)
    assert str(found[0].result).startswith(
        "shard hanging: work was stopped because it took longer than run.max_shard_seconds = 0.2: "
    )
    assert [arrival.result for arrival in found[1:]] == ["a", "b"]
    go_on.set()


def test_the_time_limit_is_that_of_the_shard_and_not_of_its_wait(clock: Clock) -> None:
    turns = threading.Semaphore()

    def work(key: str) -> str:
        assert turns.acquire(timeout=60)
        clock.now += 0.4
        return key

    keys, found = [str(number) for number in range(8)], []
    for arrival in on_threads(work, keys, "work", threads=1, limit_s=0.5):
        if arrival:
            found.append(arrival.result)
            turns.release()
    assert found == keys


_HANGING = """
import threading
from interleaved_assets.io.batches import prefetch
from interleaved_assets.pipeline.pools.threads import on_threads

def work(key):
    if key == "hanging":
        return next(prefetch(threading.Event().wait() for _ in range(2)))
    return key

print([arrival.key for arrival in on_threads(work, ["hanging", "a"], "work", threads=1, limit_s=0.3) if arrival])
"""


_TERMINATED = """
import os, signal, sys, threading
from interleaved_assets.pipeline.pools.threads import on_threads

class Terminated(BaseException):
    pass

def terminate(*_):
    raise Terminated

def work(key):
    if key == "hanging":
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait()

signal.signal(signal.SIGTERM, terminate)
shards = on_threads(work, ["hanging", "a"], "work", threads=1, limit_s=1)
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


@pytest.mark.parametrize("where", ["waiting", "logging"])
def test_a_terminated_process_ends_once_a_hanging_shard_has_reached_its_limit(where: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _TERMINATED, where], capture_output=True, text=True, timeout=300, check=True
    )
    assert (run.stdout, run.stderr) == ("terminated\n", "")


def test_the_process_ends_with_a_thread_that_hangs() -> None:
    run = subprocess.run([sys.executable, "-c", _HANGING], capture_output=True, text=True, timeout=300, check=True)
    assert (run.stdout, run.stderr) == ("['hanging', 'a']\n", "")
