"""Worker processes of this machine: a place of the map over shards.

Workers do not share an interpreter lock, so shards are worked on in parallel. A worker that crashes, or that takes too
long and is ended, costs one shard. The workers are forked from a process that has imported the work of the stages.
"""

import atexit
import errno
import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from functools import cache, lru_cache
from multiprocessing.connection import wait as wait_for_one
from multiprocessing.util import Finalize
from typing import Any, Final, Generic, TypeVar

import cloudpickle
from pebble import ProcessExpired, ProcessPool

from interleaved_assets.io.rows.processors import share_processors
from interleaved_assets.model.errors import StorageError, WorkerLost
from interleaved_assets.model.shown import show_warnings
from interleaved_assets.pipeline.run.shard_map import TICK_S, Found, Task, TaskWork, sendable, too_slow

Result = TypeVar("Result")

_IMPORTED: Final = [
    "__main__",
    "interleaved_assets.pipeline.run.many",
    "interleaved_assets.pipeline.stages.dag",
    "interleaved_assets.reporting.shard.stored_pictures",
    # modules that the work imports when it begins; one that is not installed is left out
    "pandas",  # pyarrow imports it with the first array that it makes of Python values
    "jinja2",
]
"""Modules that the process has from which workers are forked. All workers together load them once."""
_OF_LIMITS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EPIPE, errno.ECONNREFUSED})
_AHEAD: Final = 2
"""Tasks given at a time for each worker, so that none waits while the caller uses a result."""


class OnProcesses(Generic[Result]):
    """Worker processes, each with a task of one shard. They end the task at its time limit, and end with this process.

    Args:
        work: called in a worker. cloudpickle must be able to pickle it and its results.

    Raises:
        StorageError: no worker can be started.
    """

    queues = True

    def __init__(self, work: TaskWork[Result], processes: int) -> None:
        try:
            active = _pool(processes).active
        except (OSError, BrokenProcessPool) as error:
            _pool.cache_clear()
            raise _not_started(error) from error
        if not active:  # Pebble gives up all workers if one ends while none has a task
            _stop(_pool(processes))
            _pool.cache_clear()
        self._pool, self._room = _pool(processes), _AHEAD * processes
        self._pickled = pickle.dumps((dict(os.environ), sys.path, cloudpickle.dumps(work)))
        self._given: dict[Future[Any], tuple[Task, float]] = {}

    def has_room(self) -> bool:
        return len(self._given) < self._room

    def give(self, task: Task, limit_s: float) -> Future[Any]:
        try:
            given = self._pool.schedule(_work, (self._pickled, task), timeout=limit_s)
        except BrokenProcessPool as error:
            raise _not_started(error) from error
        self._given[given] = task, limit_s
        return given

    def messages(self) -> Iterator[tuple[Any, Found[Result] | None]]:
        done, _ = wait(self._given, timeout=TICK_S, return_when=FIRST_COMPLETED)
        for given in done:
            for found in _results(given, *self._given.pop(given)):
                yield given, found
            yield given, None

    def abandon(self, _: Any) -> bool:
        return False

    def close(self, _: bool, /) -> None:
        for given in self._given:
            given.cancel()  # with its worker


@cache
def _pool(processes: int) -> ProcessPool:
    """Return the workers of this process. They are kept, since a run has a step for each stage."""
    # milliseconds for which Arrow's allocator keeps freed memory: by default longer, which takes 50 to 100 MB a worker;
    # with 0, memory of large batches is got from the system for each batch anew
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "10")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    pool = ProcessPool(processes, initializer=_begin, initargs=(processes,), context=context)
    atexit.register(_stop, pool)
    # a child of multiprocessing, as each run is that Dagster's code server starts, waits for its children before it
    # calls the hooks of atexit; it calls this before, and then removes (0) the locks that a starting worker opens
    Finalize(None, _stop, args=(pool,), exitpriority=1)
    return pool


def _not_started(error: OSError | BrokenProcessPool) -> StorageError:
    """Return the error for workers that cannot be started; Pebble's is caused by that of the system."""
    needs, cause = "Their locks need a writable /dev/shm with free space", error.__cause__ or error
    if not isinstance(error, OSError) or error.errno in _OF_LIMITS:
        needs = "Raise the limits of open files and of processes (ulimit -n, ulimit -u)"
    if isinstance(cause, ConnectionError | EOFError):
        needs = f"The process that forks them ended: let this user run {sys.executable}, with enough memory. {needs}"
    reason = getattr(cause, "strerror", None) or type(cause).__name__
    return StorageError(
        f"no worker processes can be started: {reason}. {needs}; one shard at a time needs none (--jobs 1, or "
        "run.parallel_shards = 1)"
    )


def _stop(pool: ProcessPool) -> None:
    """End the workers at the end of this process.

    Without this, Pebble ends those that it has at that moment: one that it just makes, in place of one that was ended,
    would go on, and this process would wait for it forever.
    """
    pool.stop()
    pool.join()


def _results(given: "Future[Any]", task: Task, limit_s: float) -> list[Found[Any]]:
    """Return the results of a task that is done; raise an exception of its work that is no ``Exception``.

    Raises:
        StorageError: a worker that had ended cannot be started again.
    """
    error = given.exception()
    if error is None:
        return [Found(*found) for found in given.result()]
    (key,) = task.keys
    if isinstance(error, TimeoutError):
        return [Found(key, too_slow(key, task.stage, limit_s))]
    if isinstance(error, ProcessExpired):
        code = error.exitcode
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        lost = WorkerLost(
            f"shard {key}: the process of {task.stage} ended by {how}. It may have taken more memory than the machine "
            "has, or crashed a library"
        )
        return [Found(key, lost)]
    raise _not_started(error) if isinstance(error, BrokenProcessPool) else error


def _begin(processes: int) -> None:
    """Let a worker use its share of the processors, and end with the process that it works for, even if killed."""
    share_processors(processes)
    show_warnings()
    # a collection would write to every object that the imports have made, and so copy the pages that workers share
    gc.freeze()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait_for_one([parent.sentinel])
    os._exit(1)


def _work(pickled: bytes, task: Task) -> list[tuple[str, object]]:
    return [(key, sendable(found, key, task.stage)) for key, found in _unpickled(pickled)(task)]


@lru_cache(maxsize=1)
def _unpickled(pickled: bytes) -> TaskWork[Any]:
    """Return the work, and give this worker environment and ``sys.path`` of the process that it works for."""
    environment, sys.path[:], work = pickle.loads(pickled)
    os.environ.clear()
    os.environ.update(environment)
    found: TaskWork[Any] = pickle.loads(work)
    return found
