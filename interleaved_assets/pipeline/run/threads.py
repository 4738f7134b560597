"""Look at many small things on threads of this process, in their order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Final, TypeVar

from interleaved_assets.io.rows.workers import Workers
from interleaved_assets.model.errors import InterleavedError

Item = TypeVar("Item")
Result = TypeVar("Result")

READERS: Final = 32
"""Threads for reading many small files. They mostly wait for the storage, and each thread holds one file."""
TABLE_READERS: Final = 16
"""Threads for reading files of which each thread holds much: the scores or the thumbnails of a shard, a block of a tar.
"""


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


def found_or_error(
    work: Callable[[Item], Result], items: Iterable[Item], *, threads: int
) -> Iterator[tuple[Item, Result | InterleavedError]]:
    """Yield each of ``items`` with ``work`` of it, or with the InterleavedError that it raised, in their order."""

    def tried(item: Item) -> tuple[Item, Result | InterleavedError]:
        try:
            return item, work(item)
        except InterleavedError as error:
            return item, error

    return parallel_map(tried, items, threads=threads)
