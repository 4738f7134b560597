"""OpenCV's process-wide settings while pools of ours call it."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Final

import cv2

_lock: Final = threading.Lock()
_before: list[tuple[int, int]] = []
_users = 0


@contextlib.contextmanager
def opencv_for_threads() -> Iterator[None]:
    """One thread a call, and nothing on stderr about damaged images: a pool is what runs in parallel, and reports.

    Several pools may be at work at once (shards in parallel); the first to come changes OpenCV's settings, the last to
    leave puts them back.
    """
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            _before.append((cv2.getNumThreads(), cv2.utils.logging.getLogLevel()))
            cv2.setNumThreads(1)
            cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                threads, level = _before.pop()
                cv2.setNumThreads(threads)
                cv2.utils.logging.setLogLevel(level)
