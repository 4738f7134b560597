"""Ctrl-C and termination: they wait until an event is stored, and none of them is lost."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

_INTERRUPTS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Let SIGINT and SIGTERM take effect when the block ends, by the handlers that were set before it.

    Dagster raises an interrupt between any two instructions of a step. Where that is while a connection to SQLite
    is closed, the connection stays open with its lock, and the event that says why the run ended cannot be stored.
    Where it is in a callback of a weak reference, of which SQLAlchemy has many, Python drops it, and the run goes on.
    Therefore a step reads and writes Dagster's storage in such blocks only. In other threads than the main one, to
    which Python does not deliver signals, this has no effect.
    """
    if not _is_main_thread():
        yield
        return
    arrived: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        arrived.append(number)

    interrupt, terminate = (signal.getsignal(number) for number in _INTERRUPTS)
    try:
        for number in _INTERRUPTS:
            signal.signal(number, note)
        yield
    finally:
        try:
            signal.signal(signal.SIGINT, interrupt)
        finally:  # also where an interrupt arrives at this moment and is raised here
            signal.signal(signal.SIGTERM, terminate)
        if arrived:
            signal.raise_signal(arrived[0])


@contextmanager
def interrupts_noted() -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether SIGINT or SIGTERM has arrived since the block began, whichever handler had it.

    Dagster drops an interrupt that arrives after the last step of a run. Always False in other threads than the main
    one.
    """
    if not _is_main_thread():
        yield lambda: False
        return
    seen: set[int] = set()
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def has_arrived() -> bool:
        with suppress(BlockingIOError):  # none since the last call
            seen.update(os.read(reader, 4096))  # a byte for each signal
        return not seen.isdisjoint(_INTERRUPTS)

    try:
        yield has_arrived
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` on SIGTERM too, which otherwise ends the process at once and leaves its run open."""
    if not _is_main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
