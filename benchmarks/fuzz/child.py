"""Cases in forked children with limits on memory and time."""

import json
import logging
import os
import resource
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from interleaved_assets.model.errors import InterleavedError

DATA_BYTES: Final = 3 * 2**30
"""RLIMIT_DATA: private memory that the child may write to, whatever it was taken for. RLIMIT_AS would also count the
libraries and the address space that allocators reserve and do not use, some of it 1 GB at a time."""
SECONDS: Final = 20
"""Processor time of a case (RLIMIT_CPU): on a busy machine the clock says little."""
CLOCK_SECONDS: Final = 300
"""A case's time on the clock, for what waits and does not work."""

PASSED: Final = ("read", "row error", "refused")
"""The three outcomes."""

Work = Callable[[str], str]
"""One case: gets an empty folder, which is deleted afterwards, and gives its outcome."""


class WrongRead(Exception):
    """What was read is not what an independent reader finds, or does not survive being written and read."""


class Ended(NamedTuple):
    """How a case ended."""

    outcome: str
    """``read``, ``row error <codes>``, ``refused <class>``, or for a finding an exception's name or what ended it."""
    detail: str
    seconds: float
    """Processor time."""

    @property
    def passed(self) -> bool:
        """Whether it is one of the three outcomes."""
        return self.outcome.startswith(PASSED)


def run_in_children(
    cases: Sequence[Work],
    *,
    data_bytes: int = DATA_BYTES,
    seconds: int = SECONDS,
    clock_seconds: float = CLOCK_SECONDS,
) -> Iterator[Ended]:
    """Run cases in a forked child, and those behind one that ended its process in another; gives their ends in order.

    Memory counts for all cases of a child together, which is stricter than for each. The caller has no threads at work.
    """
    first = 0
    while first < len(cases):
        ends = _one_child(cases[first:], data_bytes, seconds, clock_seconds)
        yield from ends
        first += len(ends)


def _one_child(cases: Sequence[Work], data_bytes: int, seconds: int, clock_seconds: float) -> list[Ended]:
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as printed:
        pid = os.fork()
        if not pid:
            try:
                os.close(reading)
                os.dup2(printed.fileno(), 2)
                _run(cases, writing, data_bytes, seconds, clock_seconds)
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            ends = [Ended(*json.loads(line)) for line in pipe]
        _, status = os.waitpid(pid, 0)
        if len(ends) < len(cases):
            printed.seek(0)
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            limits = {signal.SIGXCPU: f"over {seconds} s", signal.SIGALRM: f"hangs for {clock_seconds} s"}
            outcome = limits.get(signal.Signals(number), f"died of {signal.Signals(number).name}") if number else "exit"
            ends.append(Ended(outcome, printed.read().decode(errors="replace")[-3000:], float(seconds)))
    return ends


def _run(cases: Sequence[Work], writing: int, data_bytes: int, seconds: int, clock_seconds: float) -> None:
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes, data_bytes))
    # their default actions end the process, whatever a library waits for
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    for case in cases:
        begin = time.process_time()
        resource.setrlimit(resource.RLIMIT_CPU, (int(begin) + 1 + seconds, resource.RLIM_INFINITY))
        signal.setitimer(signal.ITIMER_REAL, clock_seconds)
        with tempfile.TemporaryDirectory() as folder:
            outcome, detail = _outcome(case, folder)
        os.write(writing, json.dumps((outcome, detail, time.process_time() - begin)).encode() + b"\n")


def _outcome(case: Work, folder: str) -> tuple[str, str]:
    try:
        return case(folder), ""
    except InterleavedError as error:
        if not str(error).strip():
            return f"{type(error).__name__} without a message", ""
        return f"refused {type(error).__name__}", ""
    except BaseException as error:  # noqa: BLE001  any other exception is what is looked for
        return type(error).__name__, traceback.format_exc()[-3000:]
