"""Work on many things at a time, results in the order of the things."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Final, TypeVar

from interleaved_assets.io.workers import Workers

READERS: Final = 32
"""Threads for what is mostly waiting for the storage, such as reading many small files; each holds one at a time."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_map(work: Callable[[Item], Result], items: Iterable[Item], *, threads: int) -> Iterator[Result]:
    """``work`` of each of ``items``, in their order, on ``threads`` threads.

    At most twice as many results as threads are under way or wait to be taken, so that a slow taker does not pile them
    up. What ``work`` raises is raised in its turn, and what was not begun by then is left. Closing the generator takes
    no lock and waits for nothing, so that the garbage collector may do it.
    """
    waiting: deque[Future[Result]] = deque()
    with Workers(threads, getattr(work, "__name__", "work")) as workers:
        for item in items:
            waiting.append(workers.submit(work, item))
            if len(waiting) >= 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
