"""Readers that are not closed: the garbage collector closes them in any thread without a deadlock."""

import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from interleaved_assets.io.rows.batches import prefetch
from interleaved_assets.io.rows.workers import Workers
from interleaved_assets.pipeline.run.threads import parallel_map

# The collector runs where ThreadPoolExecutor.submit holds its lock: it makes the string while it does.
_COLLECTED_INSIDE_SUBMIT = """
import gc
from concurrent.futures import ThreadPoolExecutor

def failing():
    try:
        items = iter({iterator})
        raise ValueError(next(items))
    except ValueError as error:
        kept = [error]
        kept.append(kept)  # a cycle, which only the collector can free

class Name(str):
    def __str__(self):
        gc.collect()
        return "worker"

{setup}
gc.disable()
failing()
ThreadPoolExecutor(1, thread_name_prefix=Name("worker")).submit(int).result()
print("ended")
"""

_READER = """
import sys
import pyarrow as pa
from interleaved_assets.io import InterleavedParquetReader, InterleavedParquetWriter
from interleaved_assets.model import INTERLEAVED_SCHEMA, InterleavedBatch
writer = InterleavedParquetWriter(sys.argv[1])
for number in range(3):
    rows = [{"sample_id": f"s{number}", "position": 0, "modality": "text", "text_content": "x"}]
    writer.write(InterleavedBatch(pa.Table.from_pylist(rows, schema=INTERLEAVED_SCHEMA), (f"/{number}.tar",)))
"""


@pytest.mark.parametrize(
    ("setup", "iterator"),
    [
        ("from interleaved_assets.io.rows.batches import prefetch", "prefetch(number for number in range(9))"),
        (_READER, "InterleavedParquetReader(sys.argv[1])"),
    ],
    ids=["prefetch", "reader"],
)
def test_a_reader_collected_inside_submit_does_not_hang(setup: str, iterator: str, tmp_path: Path) -> None:
    program = _COLLECTED_INSIDE_SUBMIT.format(setup=setup, iterator=iterator)
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=300, check=True
    )
    assert (run.stdout, run.stderr) == ("ended\n", "")


_FAILING_SHARDS = """
import gc, sys
from pathlib import Path
from concurrent.futures import ThreadPoolExecutor
from interleaved_assets.io.rows.workers import Workers
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.threads import parallel_map
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets_tests.documents import document, project, sharp_image, write_shard

folder = Path(sys.argv[1])
settings = project(folder, "[run]\\nmax_batch_bytes = 1048576\\n")
good, _ = document("text", sharp_image(1))
image = document("text", b"\\x89PNG" + bytes(600_000))
bad = (good | {"images": [None, b"no image"], "texts": [1, None]}, [])
for number in range(20):
    # the second batch of each fails, while the third is read ahead
    write_shard(folder / "raw" / f"{number}.tar", {"a": image, "b": image, "c": bad, "d": image, "e": image})

kept = []

def failure(key):
    try:
        take_through(stage_dag(settings)["normalized"], key, settings)
    except Exception as error:
        cycle = [error]
        cycle.append(cycle)
        return type(error).__name__
    return "none"

gc.set_threshold(50, 2, 2)  # the collector runs at any moment
for count in (1, 20):
    found = []
    for name in parallel_map(failure, map(str, range(count)), threads=2):
        found.append(name)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(str, range(20)))
    print(set(found), len(found))
"""


@pytest.mark.system
def test_shards_that_fail_in_the_middle_do_not_hang_the_run(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _FAILING_SHARDS, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = [f"{{'MaterializeError'}} {count}" for count in (1, 20)]
    assert (run.stdout.splitlines(), run.stderr) == (lines, "")


@pytest.mark.parametrize(
    "iterate", [lambda work: prefetch(map(work, range(9))), lambda work: parallel_map(work, range(9), threads=1)]
)
def test_a_generator_is_closed_while_its_thread_is_busy(iterate: Callable[..., Iterator[int]]) -> None:
    begun, go_on, gone_on = threading.Event(), threading.Event(), threading.Event()

    def work(number: int) -> int:
        if number:
            begun.set()
            go_on.wait(60)
            gone_on.set()
        return number

    results = iterate(work)
    assert next(results) == 0
    assert begun.wait(60)
    del results
    gc.collect()
    assert not gone_on.is_set()
    go_on.set()


def test_the_end_of_the_block_waits_for_tasks_under_way_and_drops_the_others() -> None:
    done: list[int] = []
    begun = threading.Event()

    def work(number: int) -> None:
        begun.set()
        time.sleep(0.1)
        done.append(number)

    with Workers(1, "test") as workers:
        for number in range(100):
            workers.submit(work, number)
        assert begun.wait(60)
    assert 1 <= len(done) < 100
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("test_")]


def test_a_task_that_is_dropped_ends_for_those_who_wait_for_it() -> None:
    """As where Ctrl-C stops the threads before one of them has begun with what it was given."""
    go_on = threading.Event()
    workers = Workers(1, "work")
    workers.submit(go_on.wait, 60)
    dropped = workers.submit(int)
    workers.stop()
    go_on.set()
    assert wait([dropped], timeout=60).done == {dropped}
    assert dropped.cancelled()


def test_a_failed_task_keeps_nothing_alive() -> None:
    class Item:
        pass

    def work(_item: Item) -> None:
        raise KeyError("no")

    item = Item()
    link = weakref.ref(item)
    gc.disable()
    try:
        with Workers(1, "test") as workers:
            future = workers.submit(work, item)
            assert isinstance(future.exception(60), KeyError)
        del item, future
        assert link() is None
    finally:
        gc.enable()


def test_workers_start_at_most_one_thread_per_task() -> None:
    with Workers(8, "test") as workers:
        assert [workers.submit(str, number).result() for number in range(3)] == ["0", "1", "2"]
        assert len([thread for thread in threading.enumerate() if thread.name.startswith("test_")]) == 3


def test_two_pools_can_run_at_once() -> None:
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: list(prefetch(iter(range(3)))), range(20))) == [[0, 1, 2]] * 20


_INTERRUPTED_START = """
import threading, time
from interleaved_assets.io.rows.workers import Workers

start, started = threading.Thread.start, []

def interrupted(thread):
    start(thread)
    started.append(thread)
    if len(started) == {number}:
        raise KeyboardInterrupt

threading.Thread.start = interrupted
try:
    with Workers(2, "w") as workers:
        for _ in range(4):
            workers.submit(time.sleep, 0.05)
except KeyboardInterrupt:
    print(sorted(thread.is_alive() for thread in started))
"""


@pytest.mark.parametrize("number", [1, 2])
def test_ctrl_c_while_a_thread_is_started_ends_the_block_and_the_process(number: int) -> None:
    program = _INTERRUPTED_START.format(number=number)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True)
    assert (run.stdout, run.stderr) == (f"{[False] * number}\n", "")


def test_the_block_does_not_wait_for_a_thread_that_could_not_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(RuntimeError, match="can't start new thread"), Workers(2, "w") as workers:
        workers.submit(int)
