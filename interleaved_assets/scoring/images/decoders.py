"""Process-wide settings of OpenCV, Pillow and their C libraries while thread pools decode images."""

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
    """Decode with one thread per call and without messages on stderr: the caller's pool parallelizes and reports.

    Several pools may run at once (shards in parallel): the first one changes the settings, the last one restores them.
    Output of other threads to stderr from Python, with ``os.write`` or in child processes still arrives, and warning
    filters that they add stay. Output of C libraries to the C ``stderr`` is not shown, in any thread: see
    :func:`_silent_c_libraries`.
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
        # the garbage collector may close a generator and must not wait for a lock: the next pool then counts it
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


def _set_up() -> None:
    _undo.callback(cv2.setNumThreads, cv2.getNumThreads())
    cv2.setNumThreads(1)
    _undo.callback(cv2.utils.logging.setLogLevel, cv2.utils.logging.getLogLevel())
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    _undo.enter_context(_no_warnings_of_pillow())
    pillow = logging.getLogger("PIL")
    _undo.callback(pillow.setLevel, pillow.level)
    pillow.setLevel(logging.CRITICAL + 1)
    _undo.enter_context(_silent_c_libraries())


@contextlib.contextmanager
def _no_warnings_of_pillow() -> Iterator[None]:
    """Ignore Pillow's warnings by one filter, which is removed at the end.

    ``warnings.catch_warnings`` would put back all filters as they were and so undo what other threads changed.
    """
    # the comment in the pattern makes the filter differ from a caller's own
    warnings.filterwarnings("ignore", module=r"PIL\.(?#while decoding)")
    try:
        yield
    finally:
        patterns = ((entry, getattr(entry[3], "pattern", "")) for entry in warnings.filters)
        for own in [entry for entry, pattern in patterns if pattern.endswith("(?#while decoding)")]:
            warnings.filters.remove(own)  # type: ignore[attr-defined]  # a list, in typeshed a Sequence


@contextlib.contextmanager
def _silent_c_libraries() -> Iterator[None]:
    """Suppress messages that libpng, libjpeg and libtiff print to the C ``stderr``.

    OpenCV has the first two built in, without a way to give them a handler for warnings. Only the C library's variable
    ``stderr`` is changed, to a stream on the null device. File descriptor 2 is not: Python's ``sys.stderr``, logging,
    its fault handler, child processes, the C++ ``std::cerr`` and the messages of ``malloc`` arrive. The text of a C
    ``assert`` or of ``Py_FatalError`` does not; the process still ends with SIGABRT. Systems where the variable cannot
    be set (macOS, musl) are not changed.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        yield
        return
    stderr = ctypes.c_void_p.in_dll(library, "stderr")
    before = stderr.value
    stderr.value = _null_stream() or before
    try:
        yield
    finally:
        stderr.value = before


@functools.cache
def _null_stream() -> int | None:
    """Return a C stream on the null device; it is never closed, since a thread may still be printing to it."""
    fopen = ctypes.CDLL(None).fopen
    fopen.restype = ctypes.c_void_p
    stream: int | None = fopen(os.devnull.encode(), b"w")
    return stream
