"""A thread pool that the garbage collector can stop at any time without a deadlock."""

import atexit
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

_Task = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]

_running: Final[dict[threading.Thread, "Workers"]] = {}
_PATIENCE_S: Final = 2.0
"""Seconds that the interpreter waits at its end beyond the last deadline: a task that hangs may have started others."""


class Workers:
    """Up to ``threads`` threads that run tasks in the order of :meth:`submit`; used in a ``with`` block.

    The end of the block stops the threads and waits for running tasks. If the block ends because its generator is
    closed (``GeneratorExit``), it does not wait: the garbage collector may close a generator in any thread, while that
    thread holds any lock, and waiting there could deadlock. A ``ThreadPoolExecutor`` takes a lock in every method, so
    it cannot be used.

    Args:
        threads: maximum number of threads; they are started when tasks arrive.
        at_end: called in each thread when it ends.

    Attributes:
        deadline: time by ``time.monotonic()`` until which the end of the interpreter waits for the running tasks; None
            for as long as they take.
    """

    def __init__(self, threads: int, name: str, at_end: Callable[[], object] | None = None) -> None:
        self.deadline: float | None = None
        self._limit, self._name, self._at_end = threads, name, at_end
        self._threads: list[threading.Thread] = []
        # SimpleQueue.put() is reentrant, and documented for use in finalizers
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._is_stopped = False

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Call ``function(*arguments)`` in a thread. Tasks that have not begun when the threads stop are cancelled."""
        future: Future[Result] = Future()
        self._tasks.put((future, function, arguments))
        if len(self._threads) < self._limit:
            # daemon threads, since Python joins all others before it calls _end_all
            thread = threading.Thread(target=self._work, name=f"{self._name}_{len(self._threads)}", daemon=True)
            # first, since start() waits for the thread, and Ctrl-C may arrive there: stop() must count this thread too
            self._threads.append(thread)
            thread.start()
        return future

    def stop(self) -> None:
        """End each thread after its current task. This takes no lock and does not wait."""
        self._is_stopped = True
        for _ in self._threads:
            self._tasks.put(None)

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop()
        if kind is not GeneratorExit:
            for thread in self._threads:
                if thread.is_alive():  # a thread that could not be started cannot be joined
                    thread.join()

    def _work(self) -> None:
        _running[threading.current_thread()] = self
        try:
            while (task := self._tasks.get()) is not None:
                if self._is_stopped:
                    task[0].cancel()
                    task[0].set_running_or_notify_cancel()  # else its waiting caller would wait for ever
                    break
                _run_task(*task)
                del task  # else the task stays in memory until the next one
            if self._at_end is not None:
                self._at_end()
        finally:
            del _running[threading.current_thread()]


def _run_task(future: Future[Any], function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Call ``function(*arguments)``; ``future`` gets its result or its exception."""
    try:
        result = function(*arguments)
    except BaseException as error:  # noqa: BLE001  raised again by future.result()
        future.set_exception(error)
        del future, function, arguments  # the error's traceback refers to this frame: avoid a cycle
    else:
        future.set_result(result)


@atexit.register
def _end_all() -> None:
    """Stop threads of generators that were never closed, and wait for them, before the interpreter shuts down.

    Tasks with a deadline are not awaited for much longer than the last deadline: they may hang, with threads that they
    have started.
    """
    running = dict(_running)
    for workers in running.values():
        workers.stop()
    deadlines = [workers.deadline for workers in running.values() if workers.deadline is not None]
    until = max(deadlines) + _PATIENCE_S if deadlines else float("inf")
    for thread in running:
        thread.join(min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX))
