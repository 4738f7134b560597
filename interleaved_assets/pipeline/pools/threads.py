"""Shards on threads of this process, each with a time limit."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

from interleaved_assets.io.workers import Workers
from interleaved_assets.pipeline.pools.arrival import TICK_S, Arrival, too_slow

Result = TypeVar("Result")


def on_threads(
    work: Callable[[str], Result], keys: Sequence[str], name: str, *, threads: int, limit_s: float
) -> Iterator[Arrival[Result] | None]:
    """``work`` of each of ``keys`` on ``threads`` threads, as they become ready; None about once a second in between.

    What ``work`` raises is the result of that shard. One that takes longer than ``limit_s`` seconds fails. Nothing can
    end its thread, which is replaced by another one and neither waited for nor given further shards.
    """
    begun: dict[str, tuple[float, threading.Thread]] = {}

    def timed(key: str) -> Result:
        begun[key] = time.monotonic(), threading.current_thread()
        return work(key)

    # a terminated run ends with the shards in work, and at their time limit, without those still waiting
    with Workers(threads, name, limit_s=limit_s) as workers:
        done: SimpleQueue[Future[Result]] = SimpleQueue()
        futures = {workers.submit(timed, key): key for key in keys}
        for future in futures:
            future.add_done_callback(done.put)
        while futures:
            try:
                future = done.get(timeout=TICK_S)
            except Empty:
                yield None
            else:
                if (key := futures.pop(future, None)) is not None:  # None: it is late, and has failed for that
                    yield Arrival(key, future.exception() or future.result())
            overdue = time.monotonic() - limit_s
            for future, key in [item for item in futures.items() if item[1] in begun and begun[item[1]][0] < overdue]:
                if not future.done():
                    del futures[future]
                    workers.replace(begun[key][1])
                    yield Arrival(key, too_slow(key, name, limit_s))
