"""Work on many items in worker processes of this machine, as it is done, with a time limit for each.

Workers do not share an interpreter lock, so shards are worked on in parallel. A worker that crashes, or that takes too
long and is ended, costs one shard. The workers are forked from a process that has imported the work of the stages.
"""

import multiprocessing
import os
import pickle
import pkgutil
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import cache, lru_cache
from multiprocessing.connection import wait as wait_for_one
from pathlib import Path
from typing import Any, Final, TypeVar

import cloudpickle
from pebble import ProcessExpired, ProcessPool

from interleaved_assets.model.errors import WorkerLost
from interleaved_assets.pipeline.run.sendable import sendable
from interleaved_assets.pipeline.run.threads import TICK_S, too_slow

Item = TypeVar("Item")
Result = TypeVar("Result")

_TASKS: Final = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parents[1] / "tasks")])]
_IMPORTED: Final = [
    "__main__",
    "interleaved_assets.pipeline.run.many",
    "interleaved_assets.reporting.shard.stored_pictures",
    *(f"interleaved_assets.pipeline.tasks.{name}" for name in _TASKS),
]
"""Modules that the process has from which workers are forked. All workers together load them once."""
_AHEAD: Final = 2
"""Items given at a time for each worker, so that none waits while the caller uses a result."""


def on_processes(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    processes: int,
    limit_s: float,
    named: Callable[[Item], tuple[str, str]],
    after: Callable[[Item, Result | Exception], Iterable[Item]],
) -> Iterator[tuple[Item, Result | Exception] | None]:
    """Yield each item with the result or the error of ``work``, as they become ready; None about once a second.

    If the generator ends early, the workers of items in work are ended. All workers end with this process.

    Args:
        work: called in a worker. cloudpickle must be able to pickle it and its result.
        processes: number of workers.
        limit_s: seconds after which the worker of an item is ended, and the item fails with ShardTimeout.
        named: returns the shard and the stage of an item, for the error of one that is too slow, or that ended its
            worker (WorkerLost).
        after: returns the items that follow from an item that is done; they begin before all that wait.
    """
    pool, pickled = _pool(processes), cloudpickle.dumps((dict(os.environ), work))
    waiting, running = deque(items), dict[Future[Any], Item]()
    try:
        while waiting or running:
            while waiting and len(running) < _AHEAD * processes:
                item = waiting.popleft()
                running[pool.schedule(_work, (pickled, item, *named(item)), timeout=limit_s)] = item
            done, _ = wait(running, timeout=TICK_S, return_when=FIRST_COMPLETED)
            items_done = [(running.pop(future), future) for future in done]
            results = [(item, _result(future, *named(item), limit_s)) for item, future in items_done]
            for item, result in results:
                waiting.extendleft(after(item, result))
            yield from results
            if not done:
                yield None
    finally:
        for future in running:
            future.cancel()


@cache
def _pool(processes: int) -> ProcessPool:
    """Return the workers of this process. They are kept, since a run has a step for each stage."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    return ProcessPool(processes, initializer=_begin, context=context)


def _result(future: "Future[Any]", key: str, stage: str, limit_s: float) -> Any:
    """Return the result or the error of an item; raise an exception of its work that is no ``Exception``."""
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, TimeoutError):
        return too_slow(key, stage, limit_s)
    if isinstance(error, ProcessExpired):
        code = error.exitcode
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        return WorkerLost(
            f"shard {key}: the process of {stage} ended by {how}. It may have taken more memory than the machine has, "
            "or crashed a library"
        )
    raise error


def _begin() -> None:
    """Let a worker end with the process that it works for, even if that was killed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait_for_one([parent.sentinel])
    os._exit(1)


def _work(pickled: bytes, item: Any, key: str, stage: str) -> object:
    try:
        found = _unpickled(pickled)(item)
    except Exception as error:  # noqa: BLE001  every error is the result of its item
        found = error
    return sendable(found, key, stage)


@lru_cache(maxsize=1)
def _unpickled(pickled: bytes) -> Callable[[Any], object]:
    """Return the work, and give this worker the environment of the process that it works for."""
    environment, work = pickle.loads(pickled)
    os.environ.clear()
    os.environ.update(environment)
    return work
