"""Ctrl-C: it ends a command wherever it arrives."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_AGAIN_SECONDS = 0.05


@contextmanager
def interrupts_arrive() -> Iterator[None]:
    """Send SIGINT again where Python drops the exception that it raised.

    Python raises it between any two instructions of the main thread. In a finalizer or a callback of a weak reference
    it is printed and ignored, and the command would go on.
    """
    before = sys.unraisablehook

    def hook(dropped: "sys.UnraisableHookArgs") -> None:
        if issubclass(dropped.exc_type, Exception):
            before(dropped)
        else:  # from another thread, and later: here it would be dropped once more
            threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), signal.SIGINT)).start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
