"""Work on many things at a time, results in the order of the things."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    work: Callable[[Item], Result], items: Iterable[Item], *, threads: int, ahead: int | None = None
) -> Iterator[Result]:
    """``work`` of each of ``items``, in their order, on ``threads`` threads.

    At most ``ahead`` results (by default twice the threads) are under way or wait to be taken, so that a slow taker
    does not pile them up. What ``work`` raises is raised in its turn, and what was not begun by then is left.
    """
    ahead = ahead or 2 * threads
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix=getattr(work, "__name__", "work"))
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
