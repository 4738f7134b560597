"""Process-wide settings of OpenCV, Pillow and their C libraries while pools of ours decode with them."""

import contextlib
import ctypes
import functools
import logging
import os
import threading
import warnings
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Final

import cv2

_lock: Final = threading.Lock()
_left: Final[SimpleQueue[None]] = SimpleQueue()
_undo: Final = contextlib.ExitStack()
_users = 0
_is_set = False


@contextlib.contextmanager
def decoders_for_threads() -> Iterator[None]:
    """One thread a call, and nothing on stderr about damaged images: a pool is what runs in parallel, and reports.

    Several pools may be at work at once (shards in parallel); the first to come changes the settings, the last to
    leave puts them back.
    """
    _count(entering=1)
    is_closed = False
    try:
        yield
    except GeneratorExit:
        is_closed = True
        raise
    finally:
        _left.put(None)
        # a generator may be closed by the garbage collector, which may wait for no lock: the next pool counts it
        if not is_closed:
            _count(entering=0)


def _count(*, entering: int) -> None:
    global _users, _is_set
    with _lock:
        _users += entering
        while not _left.empty():
            _left.get()
            _users -= 1
        if _users and not _is_set:
            _set_up()
        elif _is_set and not _users:
            _undo.close()
        _is_set = _users > 0


def processors() -> int:
    """Processors that this process may use."""
    # macOS has no affinity
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _set_up() -> None:
    _undo.callback(cv2.setNumThreads, cv2.getNumThreads())
    cv2.setNumThreads(1)
    _undo.callback(cv2.utils.logging.setLogLevel, cv2.utils.logging.getLogLevel())
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    _undo.enter_context(warnings.catch_warnings())
    warnings.filterwarnings("ignore", module=r"PIL\.")
    pillow = logging.getLogger("PIL")
    _undo.callback(pillow.setLevel, pillow.level)
    pillow.setLevel(logging.CRITICAL + 1)
    _undo.enter_context(_silent_c_libraries())


@contextlib.contextmanager
def _silent_c_libraries() -> Iterator[None]:
    """Without what libpng, libjpeg and libtiff print on the C library's ``stderr``, which no option of theirs prevents.

    Only the C library's variable points elsewhere meanwhile: Python and its fault handler write to file descriptor 2
    as before. On systems that have no such variable (macOS, Windows, musl, where it is constant) nothing changes.
    """
    library = ctypes.CDLL(None) if os.name == "posix" else None
    if library is None or not hasattr(library, "gnu_get_libc_version"):
        yield
        return
    stderr = ctypes.c_void_p.in_dll(library, "stderr")
    before = stderr.value
    stderr.value = _nowhere() or before
    try:
        yield
    finally:
        stderr.value = before


@functools.cache
def _nowhere() -> int | None:
    """The C library's stream on the null device; never closed, since a thread may still be printing to it."""
    fopen = ctypes.CDLL(None).fopen
    fopen.restype = ctypes.c_void_p
    stream: int | None = fopen(os.devnull.encode(), b"w")
    return stream
