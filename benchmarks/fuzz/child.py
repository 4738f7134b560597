"""One piece of work in a forked child with limits on memory and time."""

import logging
import os
import resource
import signal
import tempfile
import traceback
from collections.abc import Callable
from typing import Final, NamedTuple

from interleaved_assets.model.errors import InterleavedError

DATA_BYTES: Final = 3 * 2**30
"""RLIMIT_DATA: private memory that the child may write to, whatever it was taken for. RLIMIT_AS would also count the
libraries and the address space that allocators reserve and do not use, some of it 1 GB at a time."""
SECONDS: Final = 20

PASSED: Final = ("read", "row error", "refused")
"""The three outcomes."""


class WrongRead(Exception):
    """What was read is not what an independent reader finds, or does not survive being written and read."""


class Ended(NamedTuple):
    """How a piece of work ended."""

    outcome: str
    """``read``, ``row error <codes>``, ``refused <class>``, or for a finding an exception's name or what ended it."""
    detail: str = ""

    @property
    def passed(self) -> bool:
        """Whether it is one of the three outcomes."""
        return self.outcome.startswith(PASSED)


def run_alone(
    work: Callable[[str], str], *, data_bytes: int = DATA_BYTES, seconds: float = SECONDS, parent: str | None = None
) -> Ended:
    """Fork, and run ``work`` in the child.

    Args:
        work: gets an empty folder, which is deleted afterwards, and gives its outcome.
        data_bytes: limit of the child's memory.
        seconds: limit of its time, on the clock.
        parent: where the folder is made; the folder for temporary files by default.
    """
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory(dir=parent) as folder, tempfile.TemporaryFile() as printed:
        pid = os.fork()
        if not pid:
            try:
                os.close(reading)
                os.dup2(printed.fileno(), 2)
                _limit(data_bytes, seconds)
                os.write(writing, _outcome(work, folder).encode(errors="replace"))
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            outcome = pipe.read().decode(errors="replace")
        _, status = os.waitpid(pid, 0)
        printed.seek(0)
        detail = printed.read().decode(errors="replace")[-3000:]
    if status or not outcome:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        outcome = f"{seconds} s" if number == signal.SIGALRM else f"died of signal {number}"
    return Ended(outcome, detail)


def _limit(data_bytes: int, seconds: float) -> None:
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes, data_bytes))
    # its default action ends the process, whatever a library waits for
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _outcome(work: Callable[[str], str], folder: str) -> str:
    try:
        return work(folder)
    except InterleavedError as error:
        if not str(error).strip():
            return f"{type(error).__name__} without a message"
        return f"refused {type(error).__name__}"
    except BaseException as error:  # noqa: BLE001  any other exception is what is looked for
        traceback.print_exc()
        return type(error).__name__
