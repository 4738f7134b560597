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
_hanging: Final[set[threading.Thread]] = set()
"""Threads that were replaced and have not ended."""
_PATIENCE_S: Final = 2.0
"""Seconds that the interpreter waits at its end for each thread, where some hang: others may wait for those."""


class Workers:
    """Up to ``threads`` threads that run tasks in the order of :meth:`submit`; used in a ``with`` block.

    The end of the block stops the threads and waits for running tasks. If the block ends because its generator is
    closed (``GeneratorExit``), it does not wait: the garbage collector may close a generator in any thread, while that
    thread holds any lock, and waiting there could deadlock. A ``ThreadPoolExecutor`` takes a lock in every method, so
    it cannot be used.

    Args:
        threads: maximum number of threads; they are started when tasks arrive.
        at_end: called in each thread when it ends.
        limit_s: seconds that a task may take. Neither the end of the block nor that of the interpreter waits longer for
            it; None for no limit.
    """

    def __init__(
        self, threads: int, name: str, at_end: Callable[[], object] | None = None, limit_s: float | None = None
    ) -> None:
        self._limit, self._name, self._at_end, self._limit_s = threads, name, at_end, limit_s
        self._began: dict[threading.Thread, float] = {}  # of each running task, by time.monotonic()
        self._threads: list[threading.Thread] = []
        # SimpleQueue.put() is reentrant, and documented for use in finalizers
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._is_stopped = False

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Call ``function(*arguments)`` in a thread. Tasks that have not begun when the threads stop are dropped."""
        future: Future[Result] = Future()
        self._tasks.put((future, function, arguments))
        if len(self._threads) < self._limit:
            self._start()
        return future

    def stop(self) -> None:
        """End each thread after its current task. Takes no lock and does not wait."""
        self._is_stopped = True
        for _ in self._threads:
            self._tasks.put(None)

    def replace(self, thread: threading.Thread) -> None:
        """Give up one of the threads, whose task hangs: another one takes its place, and nothing waits for it.

        Does nothing for a thread that was given up before: it may have begun another task at that moment.
        """
        if thread in self._threads:
            _hanging.add(thread)
            self._threads.remove(thread)
            self._start()

    def join(self, thread: threading.Thread) -> None:
        """Wait for a thread that was told to stop, until its task reaches the time limit: then it is given up."""
        if not thread.is_alive():
            return  # it has ended, or Ctrl-C arrived while it was started: then it finds that the others have stopped
        if self._limit_s is None:
            thread.join()
            return
        began = self._began.get(thread)
        left = _PATIENCE_S if began is None else max(0.0, began + self._limit_s - time.monotonic())
        thread.join(min(left, threading.TIMEOUT_MAX))  # a limit may be set to inf
        if thread.is_alive():
            _hanging.add(thread)

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop()
        if kind is not GeneratorExit:
            for thread in self._threads:
                self.join(thread)

    def _start(self) -> None:
        # daemon threads, since Python joins all others before it calls _end_all
        thread = threading.Thread(target=self._work, name=f"{self._name}_{len(self._threads)}", daemon=True)
        # first, since start() waits for the thread, and Ctrl-C may arrive there: stop() has to count it too
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        thread = threading.current_thread()
        _running[thread] = self
        try:
            while thread not in _hanging and (task := self._tasks.get()) is not None and not self._is_stopped:
                self._began[thread] = time.monotonic()
                run_task(*task)
                del self._began[thread]
                del task  # else it stays in memory until the next task
            if self._at_end is not None:
                self._at_end()
        finally:
            del _running[thread]
            _hanging.discard(thread)


def run_task(future: Future[Any], function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Call ``function(*arguments)`` here; ``future`` gets its result or its exception."""
    try:
        result = function(*arguments)
    except BaseException as error:  # noqa: BLE001  raised again by future.result()
        future.set_exception(error)
        del future, function, arguments  # the error's traceback refers to this frame: avoid a cycle
    else:
        future.set_result(result)


@atexit.register
def _end_all() -> None:
    """Stop threads of generators that were never closed, before the interpreter shuts down."""
    running = dict(_running)
    for workers in running.values():
        workers.stop()
    # those with a time limit first: where their tasks hang, so may threads that these tasks have started
    for thread, workers in running.items():
        if workers._limit_s is not None:
            workers.join(thread)
    for thread in running:
        thread.join(_PATIENCE_S if _hanging else None)
