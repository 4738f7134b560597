"""The one map over shards: in worker processes, on threads or on a Ray cluster; or in the thread of the caller.

A task is some shards at one stage, and a :class:`Workplace` does tasks. Wherever that is, :func:`each_result` handles
what goes wrong: a shard that takes too long, a storage that does not answer, a worker that is lost.
"""

import logging
import math
import pickle
import random
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import cloudpickle

from interleaved_assets.io.rows.workers import Workers
from interleaved_assets.model.errors import ShardError, ShardTimeout, StorageUnavailable, WorkerLost
from interleaved_assets.pipeline.run.stage import ShardResult

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

TICK_S: Final = 1.0
"""Seconds without a result after which None is yielded, so that the caller can report progress."""
_PAUSE_S: Final = 30.0
_WORKERS: Final = 3
"""Workers that may be lost with a task before its shards fail, since one of the shards may be what ends its worker."""


class Task(NamedTuple):
    """Shards that are taken through a stage with one call."""

    keys: tuple[str, ...]
    stage: str
    attempt: int = 1

    def pause(self) -> None:
        """Wait before another attempt: for a random time, on average longer each time."""
        if self.attempt > 1:
            time.sleep(random.uniform(0, min(_PAUSE_S, 2 ** (self.attempt - 2))))


TaskWork = Callable[[Task], Iterable[tuple[str, Result | Exception]]]
"""Does a task: it yields the key of each shard with the result or the error, in the order of the keys."""


class Begun(NamedTuple):
    """The message that a worker has begun a task; ``host`` is the address of its node."""

    host: str


class Found(NamedTuple, Generic[Result]):
    """The message that a shard is done."""

    key: str
    result: Result | Exception


class Workplace(Protocol[Result]):
    """A place where tasks are done.

    Attributes:
        queues: whether a task may wait for a worker there; its time limit then begins with its first message.
    """

    queues: bool

    def has_room(self) -> bool:
        """Return whether another task can be given."""

    def give(self, task: Task, limit_s: float) -> Any:
        """Give a task, and return a handle of it."""

    def messages(self) -> Iterable[tuple[Any, Begun | Found[Result] | WorkerLost | None]]:
        """Wait about a second for messages, and yield each with the handle of its task; None ends a task."""

    def abandon(self, handle: Any) -> bool:
        """Give up a task; return False if it has a message."""

    def close(self, awaits_work: bool, /) -> None:
        """End the tasks; wait for those that cannot be ended, if ``awaits_work``."""


@dataclass
class _Given:
    """A task that was given to a place."""

    task: Task
    left: dict[str, None]
    """Its shards without a result."""
    at: float
    deadline: float
    host: str = ""
    queue_seconds: float = 0.0
    unavailable: list[str] = field(default_factory=list)
    """Its shards whose storage did not answer."""


def each_result(
    place: Workplace[Result],
    tasks: Iterable[Task],
    *,
    limit_s: float = math.inf,
    tries: int = 1,
    after: Callable[[ShardResult[Result]], Iterable[Task]] = lambda _: (),
) -> Iterator[ShardResult[Result] | None]:
    """Yield the result or the error of each shard of ``tasks`` as it is ready; None about once a second in between.

    A shard fails with ShardTimeout if it has no result ``limit_s`` seconds after its task began, or after the shard
    before it in the task; the others of the task are given again. A shard whose storage does not answer is tried
    ``tries`` times. A task whose worker is lost is given again, in the end each of its shards by itself.

    Args:
        after: returns the tasks that follow from a shard that is done; they begin before all that wait.
    """
    waiting = deque(tasks)
    running: dict[Any, _Given] = {}
    results: deque[ShardResult[Result]] = deque()
    is_closed = False

    def end(one: _Given, key: str, result: Result | Exception) -> None:
        del one.left[key]
        results.append(ShardResult(key, one.task.stage, result, one.host, one.queue_seconds))
        waiting.extendleft(after(results[-1]))

    def end_task(one: _Given, lost: WorkerLost | None) -> None:
        again = one.unavailable
        if lost and one.task.attempt < _WORKERS:
            again += one.left
        elif lost and len(one.left) > 1:
            waiting.extend(Task((key,), one.task.stage) for key in one.left)
        else:
            for key in list(one.left):
                end(one, key, _without_result(key, one.task.stage, lost))
        if again:
            waiting.append(one.task._replace(keys=tuple(again), attempt=one.task.attempt + 1))

    try:
        while waiting or running or results:
            while waiting and place.has_room():
                task = waiting.popleft()
                now = time.monotonic()
                deadline = math.inf if place.queues else now + limit_s
                running[place.give(task, limit_s)] = _Given(task, dict.fromkeys(task.keys), now, deadline)
            if results:
                # yielded after the next tasks have begun: the caller logs a result while these go on
                yield results.popleft()
                continue
            is_idle = True
            for handle, message in place.messages():
                is_idle, one = False, running[handle]
                one.deadline = time.monotonic() + limit_s
                if isinstance(message, Begun):
                    one.host, one.queue_seconds = message.host, time.monotonic() - one.at
                elif not isinstance(message, Found):
                    end_task(running.pop(handle), message)
                elif isinstance(message.result, StorageUnavailable) and one.task.attempt < tries:
                    del one.left[message.key]
                    one.unavailable.append(message.key)
                else:
                    end(one, *message)
            for handle, one in list(running.items()):
                if time.monotonic() > one.deadline and place.abandon(handle):
                    del running[handle]
                    for slow in [*one.left][:1]:  # shards are processed in order
                        end(one, slow, too_slow(slow, one.task.stage, limit_s))
                    if rest := (*one.left, *one.unavailable):
                        waiting.append(one.task._replace(keys=rest))
            if is_idle:
                yield None
    except GeneratorExit:
        is_closed = True  # the garbage collector may be closing it, and waiting could deadlock there
        raise
    finally:
        place.close(not is_closed)


def each(work: Callable[[str], Result], task: Task) -> Iterator[tuple[str, Result | Exception]]:
    """Do a task by calling ``work`` for each of its shards."""
    for key in task.keys:
        try:
            yield key, work(key)
        except Exception as error:  # noqa: BLE001  of this shard alone; the caller reports it
            yield key, error


class OnThreads(Generic[Result]):
    """Threads of this process, each with a task of one shard.

    A thread cannot be ended: if its shard takes too long, another thread takes its place, and nothing waits for it.
    """

    queues = False

    def __init__(self, work: TaskWork[Result], threads: int) -> None:
        self._work = work
        self._idle = [Workers(1, "shards") for _ in range(threads)]
        self._busy: dict[Future[list[tuple[str, Result | Exception]]], Workers] = {}

    def has_room(self) -> bool:
        return bool(self._idle)

    def give(self, task: Task, limit_s: float) -> Future[list[tuple[str, Result | Exception]]]:
        worker = self._idle.pop()
        worker.deadline = time.monotonic() + limit_s
        given = worker.submit(lambda: list(self._work(task)))
        self._busy[given] = worker
        return given

    def messages(self) -> Iterator[tuple[Any, Found[Result] | None]]:
        done, _ = wait(self._busy, timeout=TICK_S, return_when=FIRST_COMPLETED)
        for given in done:
            self._idle.append(self._busy.pop(given))
            yield from ((given, Found(*found)) for found in given.result())
            yield given, None

    def abandon(self, handle: Any) -> bool:
        if handle.done():
            return False
        self._busy.pop(handle).stop()
        self._idle.append(Workers(1, "shards"))
        return True

    def close(self, awaits_work: bool, /) -> None:
        """Stop the threads; wait for tasks under way until their deadlines, if ``awaits_work``."""
        for worker in (*self._idle, *self._busy.values()):
            worker.stop()
        if self._busy and awaits_work:
            logger.warning("interrupted: waiting until the shards in work are done: %d", len(self._busy))
            last = max(worker.deadline or 0.0 for worker in self._busy.values())
            wait(self._busy, timeout=min(max(0.0, last - time.monotonic()), threading.TIMEOUT_MAX))


def in_caller(work: TaskWork[Result], task: Task, *, tries: int) -> Iterator[ShardResult[Result]]:
    """Yield the result or the error of each shard of ``task``, done in the thread of the caller.

    An interruption of the caller ends the work, and there is no time limit. A shard whose storage does not answer is
    tried ``tries`` times.
    """
    while task.keys:
        again = []
        for key, result in work(task):
            if isinstance(result, StorageUnavailable) and task.attempt < tries:
                again.append(key)
            else:
                yield ShardResult(key, task.stage, result)
        task = task._replace(keys=tuple(again), attempt=task.attempt + 1)


def sendable(result: Any, key: str, stage: str) -> Any:
    """Return ``result``, or an error of this shard if it cannot be pickled, which would end all work.

    The traceback of an error is added as a note, which pickling keeps.
    """
    if isinstance(result, Exception):
        result.add_note("".join(traceback.format_exception(result)).rstrip())
    try:
        pickle.loads(cloudpickle.dumps(result))
    except Exception as error:  # noqa: BLE001  pickling runs code of any class
        if isinstance(result, Exception):
            return ShardError(f"{type(result).__name__}: {result}")
        return ShardError(
            f"shard {key}: the result of {stage} cannot be sent from its worker: {type(error).__name__}: {error}"
        )
    return result


def too_slow(key: str, stage: str, limit_s: float) -> ShardTimeout:
    """Return the error of a shard that took longer than ``run.max_shard_seconds``."""
    return ShardTimeout(
        f"shard {key}: {stage} was stopped because it took longer than run.max_shard_seconds = {limit_s:g}: "
        "its worker or the storage hangs, or the shard is larger than that time allows. Look at the shard, then raise "
        "the limit or materialize it again"
    )


def _without_result(key: str, stage: str, lost: WorkerLost | None) -> ShardError:
    if lost is None:
        return ShardError(f"shard {key}: {stage} ended without a result for it; this is an error of its code")
    return WorkerLost(
        f"shard {key}: {_WORKERS} workers were lost with {stage}: {lost}. It may take more memory than a node has, or "
        "crash a library"
    )
