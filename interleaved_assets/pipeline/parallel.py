"""A parallel map that keeps the order of its items."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Final, TypeVar

from interleaved_assets.io.workers import Workers

READERS: Final = 32
"""Threads for reading many small files, which mostly waits for the storage; each thread holds one file."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_map(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    threads: int,
    at_once: Callable[[Item], Result | None] = lambda _: None,
) -> Iterator[Result]:
    """``work`` of each of ``items``, in their order, on ``threads`` threads.

    At most ``2 * threads`` results are in progress or not yet consumed, which bounds memory. An exception of ``work``
    is raised at the place of its item, and items not yet begun are not begun. Closing the generator takes no lock and
    does not wait, so that the garbage collector can do it.

    Args:
        work: called with an item on one of the threads.
        at_once: called with an item on the thread of the caller; ``work`` is called for the items of which this is
            None. Work that waits for nothing is done faster there than on threads, which contend for the interpreter.
    """
    waiting: deque[Result | Future[Result]] = deque()
    with Workers(threads, getattr(work, "__name__", "work")) as workers:
        for item in items:
            found = at_once(item)
            waiting.append(workers.submit(work, item) if found is None else found)
            if len(waiting) >= 2 * threads:
                yield _result(waiting.popleft())
        while waiting:
            yield _result(waiting.popleft())


def _result(found: Result | Future[Result]) -> Result:
    return found.result() if isinstance(found, Future) else found
