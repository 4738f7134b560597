"""Threads whose owner may be closed by the garbage collector at any time."""

import atexit
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

_Task = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]

_running: Final[dict[threading.Thread, "Workers"]] = {}


class Workers:
    """Up to ``threads`` threads, which take tasks in the order of :meth:`submit`; to be used in a ``with`` block.

    The end of the block stops the threads and waits for the tasks under way. The block of a generator that is closed
    (``GeneratorExit``) stops them without waiting: the garbage collector may be what closes it, in any thread and while
    that thread holds any lock, and a thread that waited there might wait for itself. For that reason this is no
    ``ThreadPoolExecutor``, whose every method takes a lock.

    Args:
        threads: at most so many, started as tasks come.
        name: front of the threads' names.
        at_end: called in each thread when it ends.
    """

    def __init__(self, threads: int, name: str, at_end: Callable[[], object] | None = None) -> None:
        self._limit, self._name, self._at_end = threads, name, at_end
        self._threads: list[threading.Thread] = []
        # put() of this queue may interrupt itself and any other call: documented for use in finalizers
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._is_stopped = False

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Have ``function(*arguments)`` called in a thread. What is not begun when the threads stop never will be."""
        future: Future[Result] = Future()
        self._tasks.put((future, function, arguments))
        if len(self._threads) < self._limit:
            # daemon threads, since Python waits for all others before it calls _end_all
            thread = threading.Thread(target=self._work, name=f"{self._name}_{len(self._threads)}", daemon=True)
            thread.start()
            self._threads.append(thread)
        return future

    def stop(self) -> None:
        """Let each thread end after the task that it is at. Takes no lock and waits for nothing."""
        self._is_stopped = True
        for _ in self._threads:
            self._tasks.put(None)

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop()
        if kind is not GeneratorExit:
            for thread in self._threads:
                thread.join()

    def _work(self) -> None:
        _running[threading.current_thread()] = self
        try:
            while (task := self._tasks.get()) is not None and not self._is_stopped:
                _run(*task)
                del task  # else it stays in memory until the next one comes
            if self._at_end is not None:
                self._at_end()
        finally:
            del _running[threading.current_thread()]


def _run(future: Future[Any], function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        result = function(*arguments)
    except BaseException as error:  # noqa: BLE001  whatever it is, it is raised where the result is asked for
        future.set_exception(error)
        del future, function, arguments  # the error's traceback leads here: no cycle, and nothing kept alive by it
    else:
        future.set_result(result)


@atexit.register
def _end_all() -> None:
    """Stop what generators left behind, before the interpreter takes away what their threads stand on."""
    running = dict(_running)
    for workers in running.values():
        workers.stop()
    for thread in running:
        thread.join()
