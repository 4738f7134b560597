"""Ctrl-C and termination wait until an event is stored."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Let SIGINT and SIGTERM take effect when the block ends, by the handlers that were set before it.

    Dagster raises an interrupt between any two instructions of a step. Where that is while a connection to SQLite
    is closed, the connection stays open with its lock, and the event that says why the run ended cannot be stored. In
    other threads than the main one, to which Python does not deliver signals, this has no effect.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _frame: arrived.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])
