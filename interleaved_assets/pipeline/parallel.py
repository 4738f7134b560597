"""Work on many things at a time, results in the order of the things."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

READERS: Final = 32
"""Threads for what is mostly waiting for the storage, such as reading many small files; each holds one at a time."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_map(work: Callable[[Item], Result], items: Iterable[Item], *, threads: int) -> Iterator[Result]:
    """``work`` of each of ``items``, in their order, on ``threads`` threads.

    At most twice as many results as threads are under way or wait to be taken, so that a slow taker does not pile them
    up. What ``work`` raises is raised in its turn, and what was not begun by then is left.
    """
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix=getattr(work, "__name__", "work"))
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
