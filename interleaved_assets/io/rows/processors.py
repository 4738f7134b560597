"""The number of processors that this process may use, for the threads and worker processes it starts."""

import contextlib
import math
import os
from functools import cache
from numbers import Integral
from pathlib import Path
from typing import Final

from interleaved_assets.model.errors import OptionError

_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")
"""The limit of a container on Linux: microseconds of processors in each period, or ``max``, and the period."""
_WORKERS_BY_DEFAULT: Final = 8
"""A worker process takes 100 to 300 MB, and on 16 processors 16 are no faster than 8 with two threads each."""

_sharing = 1


def processors() -> int:
    """Return the number of processors that this process may use; of a worker process its share, at least 2 of them.

    With one thread a worker would wait for the storage where it could measure; with a thread for each processor, the
    threads of all workers wait for each other.
    """
    # macOS has no affinity
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    allowed = min(allowed, _quota() or allowed)
    return min(allowed, max(2, allowed // _sharing))


def thread_count(threads: int | None) -> int:
    """Return the number of threads that a caller asks for, or :func:`processors` for None and 0.

    Raises:
        OptionError: it is no whole number, or below 0.
    """
    if threads is not None and (not isinstance(threads, Integral) or threads < 0):
        raise OptionError(f"threads is a whole number from 0, or None, got {threads!r}")
    return threads or processors()


def worker_processes() -> int:
    """Return the number of worker processes that a machine has by default: half of :func:`processors`, from 2 to 8."""
    return min(_WORKERS_BY_DEFAULT, max(2, processors() // 2))


def share_processors(processes: int) -> None:
    """Declare that ``processes`` like this one work at the same time."""
    global _sharing
    _sharing = processes


@cache
def _quota() -> int | None:
    """Return the processors that the container of this process may use; None without such a limit."""
    with contextlib.suppress(OSError):
        time, period = _QUOTA.read_text().split()
        if time != "max":
            return math.ceil(int(time) / int(period))
    return None
