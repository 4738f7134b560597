"""Work on many items on threads of this process: in their order, or as it is done with a time limit for each."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Final, TypeVar

from interleaved_assets.io.rows.workers import Workers
from interleaved_assets.model.errors import ShardTimeout

Item = TypeVar("Item")
Result = TypeVar("Result")

READERS: Final = 32
"""Threads for reading many small files. They mostly wait for the storage, and each thread holds one file."""
TABLE_READERS: Final = 16
"""Threads for reading files of which each thread holds much: the scores or the thumbnails of a shard, a block of a tar.
"""
TICK_S: Final = 1.0
"""Seconds without a result after which None is yielded, so that the caller can report progress."""


def parallel_map(work: Callable[[Item], Result], items: Iterable[Item], *, threads: int) -> Iterator[Result]:
    """Yield ``work`` of each of ``items``, in their order, done on ``threads`` threads.

    At most ``2 * threads`` results are in progress or not yet consumed, which bounds memory. An exception of ``work``
    is raised at the place of its item, and later items that have not begun do not begin. Closing the generator takes no
    lock and does not wait, so that the garbage collector can close it.
    """
    waiting: deque[Future[Result]] = deque()
    with Workers(threads, getattr(work, "__name__", "work")) as workers:
        for item in items:
            waiting.append(workers.submit(work, item))
            if len(waiting) >= 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def on_threads(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    named: Callable[[Item], tuple[str, str]],
    threads: int,
    limit_s: float = math.inf,
    ended: threading.Event | None = None,
    after: Callable[[Item, Result | Exception], Iterable[Item]] = lambda *_: (),
) -> Iterator[tuple[Item, Result | Exception] | None]:
    """Yield each item with the result or the error of ``work``, as they become ready; None about once a second.

    An item that takes longer than ``limit_s`` seconds fails with ShardTimeout. Its thread cannot be ended: another
    thread takes its place, and nothing waits for it. If the caller is interrupted, items in work are waited for, up to
    their limit, and the others do not begin.

    Args:
        named: returns the shard and the stage of an item, for the error of one that is too slow.
        threads: items in work at a time.
        ended: is set when the generator ends or is interrupted, so that ``work`` can end early.
        after: returns the items that follow from an item that is done; they begin before all that wait.

    Raises:
        BaseException: an exception of ``work`` that is no ``Exception``.
    """
    waiting = deque(items)
    idle = [Workers(1, "shards") for _ in range(min(threads, len(items)))]
    running: dict[Future[Result], tuple[Item, Workers, float]] = {}
    all_workers = list(idle)
    results: deque[tuple[Item, Result | Exception]] = deque()
    is_closed = False
    try:
        while waiting or running:
            while waiting and idle:
                worker, item = idle.pop(), waiting.popleft()
                worker.deadline = time.monotonic() + limit_s
                running[worker.submit(work, item)] = item, worker, worker.deadline
            if results:
                # yielded after their workers have begun the next items: the caller logs a result while these go on
                yield results.popleft()
                continue
            done, _ = wait(running, timeout=TICK_S, return_when=FIRST_COMPLETED)
            for future in done:
                item, worker, _ = running.pop(future)
                idle.append(worker)
                error = future.exception()
                if error is not None and not isinstance(error, Exception):
                    raise error
                results.append((item, future.result() if error is None else error))
                waiting.extendleft(after(*results[-1]))
            for future, (item, worker, deadline) in list(running.items()):
                if time.monotonic() > deadline and not future.done():
                    del running[future]
                    worker.stop()
                    idle.append(Workers(1, "shards"))
                    all_workers.append(idle[-1])
                    results.append((item, too_slow(*named(item), limit_s)))
                    waiting.extendleft(after(*results[-1]))
            if not done:
                yield None
        yield from results
    except GeneratorExit:
        is_closed = True  # the garbage collector may be closing it, and waiting could deadlock there
        raise
    finally:
        if ended is not None:
            ended.set()
        for worker in all_workers:
            worker.stop()
        if running and not is_closed:
            last = max(deadline for _, _, deadline in running.values())
            wait(running, timeout=min(max(0.0, last - time.monotonic()), threading.TIMEOUT_MAX))


def too_slow(key: str, stage: str, limit_s: float) -> ShardTimeout:
    """Return the error of a shard that took longer than ``run.max_shard_seconds``."""
    return ShardTimeout(
        f"shard {key}: {stage} was stopped because it took longer than run.max_shard_seconds = {limit_s:g}: "
        "its worker or the storage hangs, or the shard is larger than that time allows. Look at the shard, then raise "
        "the limit or materialize it again"
    )
