import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import pytest

from interleaved_assets.model.errors import ShardError, ShardTimeout, WorkerLost
from interleaved_assets.pipeline.run import shard_map
from interleaved_assets.pipeline.run.shard_map import Begun, Found, OnThreads, Task, each, each_result
from interleaved_assets.pipeline.run.stage import ShardResult
from interleaved_assets_tests.defects import stand_in


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, shard_map, "TICK_S", 0.02)


def on_threads(
    work: Callable[[str], object], keys: Iterable[str], *, threads: int, **options: Any
) -> Iterator[tuple[str, object] | None]:
    """Each key with its result, of tasks of one shard each at the stage ``work``."""
    place: OnThreads[object] = OnThreads(partial(each, work), threads)
    for one in each_result(place, [Task((key,), "work") for key in keys], **options):
        yield one and (one.key, one.result)


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
    found = dict(filter(None, on_threads(lambda key: 6 / int(key), "302", threads=threads)))
    assert (found.pop("3"), found.pop("2")) == (2, 3)
    assert isinstance(found.pop("0"), ZeroDivisionError)
    assert found == {}


def test_no_items() -> None:
    assert list(on_threads(str, [], threads=2)) == []


def test_a_worker_begins_the_next_item_while_the_caller_looks_at_a_result() -> None:
    second_begun = threading.Event()

    def work(key: str) -> str:
        if key == "b":
            second_begun.set()
        return key

    found = filter(None, on_threads(work, "ab", threads=1))
    assert next(found) == ("a", "a")
    assert second_begun.wait(60)
    assert list(found) == [("b", "b")]


def test_what_is_no_exception_is_raised() -> None:
    def work(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(on_threads(work, "a", threads=1))


@pytest.mark.parametrize("limit_s", [math.inf, 1e12])
def test_an_interrupted_caller_waits_for_what_is_in_work_and_begins_nothing_more(
    limit_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    begun, done = threading.Event(), []

    def work(key: str) -> None:
        if key == "a":
            assert begun.wait(60)
            raise KeyboardInterrupt
        begun.set()
        time.sleep(0.05)
        done.append(key)

    with pytest.raises(KeyboardInterrupt):
        list(on_threads(work, "abc", threads=2, limit_s=limit_s))
    assert done == ["b"]
    assert caplog.messages == ["interrupted: waiting until the shards in work are done: 1"]


def test_a_hanging_shard_fails_and_the_others_go_on_with_as_many_threads(clock: Clock) -> None:
    go_on = threading.Event()

    def work(key: str) -> str:
        if key == "hanging":
            clock.now += 1
            assert go_on.wait(60)
        return key

    keys = ["hanging", "a", "b"]
    arrivals = list(on_threads(work, keys, threads=1, limit_s=0.2))
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
    for arrival in on_threads(work, keys, threads=1, limit_s=0.5):
        if arrival:
            found.append(arrival[1])
            turns.release()
    assert found == keys


_HANGING = """
import threading
from interleaved_assets.io.rows.batches import prefetch
from interleaved_assets.pipeline.run.shard_map import OnThreads, Task, each_result

def work(task):
    if task.keys == ("hanging",):
        next(prefetch(threading.Event().wait() for _ in range(2)))
    return [(key, key) for key in task.keys]

tasks = [Task((key,), "work") for key in ("hanging", "a")]
print([found.key for found in each_result(OnThreads(work, 1), tasks, limit_s=0.3) if found])
"""


_TERMINATED = """
import os, signal, sys, threading
from interleaved_assets.pipeline.run.shard_map import OnThreads, Task, each_result

class Terminated(BaseException):
    pass

def terminate(*_):
    raise Terminated

def work(task):
    if task.keys == ("hanging",):
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait()

signal.signal(signal.SIGTERM, terminate)
shards = each_result(OnThreads(work, 1), [Task((key,), "work") for key in ("hanging", "a")], limit_s=1)
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


@pytest.mark.system
@pytest.mark.parametrize("where", ["waiting", "logging"])
def test_a_terminated_process_ends_once_a_hanging_shard_has_reached_its_limit(
    where: str, ended: dict[str, tuple[int, str, str]]
) -> None:
    assert ended[where] == (0, "terminated\n", "")


@pytest.mark.system
def test_the_process_ends_with_a_thread_that_hangs(ended: dict[str, tuple[int, str, str]]) -> None:
    assert ended["hanging"] == (0, "['hanging', 'a']\n", "")


def test_tasks_that_follow_from_a_shard_that_is_done_begin_before_those_that_wait() -> None:
    order: list[str] = []

    def after(one: ShardResult[object]) -> list[Task]:
        assert one.result == one.key
        return [Task((f"{one.key}+",), "work")] if len(one.key) < 3 else []

    found = list(on_threads(lambda key: order.append(key) or key, "ab", threads=1, after=after))
    assert order == ["a", "a+", "a++", "b", "b+", "b++"]
    assert sorted(one[0] for one in found if one is not None) == sorted(order)


class Scripted:
    """A place whose workers send what ``script`` has for a task, in place of a cluster."""

    queues = True

    def __init__(self, script: Callable[[Task], Iterable[object]]) -> None:
        self.script, self.tasks = script, list[Task]()
        self.given: dict[int, Iterator[Any]] = {}

    def has_room(self) -> bool:
        return not self.given

    def give(self, task: Task, _: float) -> int:
        self.tasks.append(task)
        self.given[len(self.tasks)] = chain([Begun("10.0.0.1")], self.script(task))
        return len(self.tasks)

    def messages(self) -> Iterator[tuple[int, Any]]:
        for handle, messages in list(self.given.items()):
            message = next(messages, None)
            if message is None or isinstance(message, WorkerLost):
                del self.given[handle]
            if message != "hangs":
                yield handle, message

    def abandon(self, handle: int) -> bool:
        del self.given[handle]
        return True

    def close(self, _: bool, /) -> None: ...

    def results(self, keys: str, **options: Any) -> dict[str, object]:
        found = each_result(self, [Task(tuple(keys), "work")], **options)
        return {one.key: one.result for one in found if one is not None}


def test_a_task_whose_worker_is_lost_is_given_again_in_the_end_each_shard_by_itself() -> None:
    def script(task: Task) -> Iterable[object]:
        for key in task.keys:
            yield WorkerLost("killed") if key == "c" else Found(key, key)

    place = Scripted(script)
    found = place.results("abcd")
    lost = found.pop("c")
    assert isinstance(lost, WorkerLost)
    assert str(lost).startswith("shard c: 3 workers were lost with work: killed. It may take more memory")
    assert found == {"a": "a", "b": "b", "d": "d"}
    assert ["".join(task.keys) for task in place.tasks] == ["abcd", "cd", "cd", "c", "d", "c", "c"]


def test_of_shards_taken_together_a_hanging_one_fails_and_those_after_it_are_given_again(clock: Clock) -> None:
    def script(task: Task) -> Iterable[object]:
        for key in task.keys:
            if key == "b":
                clock.now += 2
                yield "hangs"
            yield Found(key, key)

    place = Scripted(script)
    found = place.results("abcd", limit_s=1)
    assert isinstance(found.pop("b"), ShardTimeout)
    assert found == {"a": "a", "c": "c", "d": "d"}
    assert ["".join(task.keys) for task in place.tasks] == ["abcd", "cd"]


def test_a_shard_without_a_result_at_the_end_of_its_task_fails() -> None:
    found = Scripted(lambda task: [Found("a", 1)]).results("ab")
    assert found["a"] == 1
    assert type(found["b"]) is ShardError
    assert str(found["b"]) == "shard b: work ended without a result for it; this is an error of its code"
