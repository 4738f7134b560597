"""Runs of stages in threads that stop before each of their steps until the test lets them continue."""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from interleaved_assets.io.storage import read_stamp
from interleaved_assets.model.errors import InterleavedError
from interleaved_assets.pipeline.run.record import Record, has_its_outputs, read_record
from interleaved_assets.pipeline.run.stage import StageOutcome

_WAIT_SECONDS = 300
_of_thread = threading.local()


class Killed(BaseException):
    """Ends a thread as a signal ends a process: the code under test does not catch it."""


@dataclass
class SteppedRun:
    """Calls ``work`` in a thread of its own, from one :func:`pause` to the next."""

    work: Callable[[], StageOutcome]
    result: StageOutcome | BaseException | None = None
    _orders: "queue.SimpleQueue[str]" = field(default_factory=queue.SimpleQueue)
    _done: "queue.SimpleQueue[str]" = field(default_factory=queue.SimpleQueue)
    _thread: threading.Thread | None = None

    def step(self) -> None:
        """Take the next step, and wait until it is done; does nothing if the run has ended."""
        if self.result is not None:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()
        else:
            self._orders.put("go on")
        self._done.get(timeout=_WAIT_SECONDS)

    def finish(self) -> None:
        """Take all steps that are left."""
        while self.result is None:
            self.step()

    def kill(self) -> None:
        """End the run before its next step; does nothing if it has ended or never began."""
        if self._thread is not None and self._thread.is_alive():
            self._orders.put("die")
            self._thread.join(_WAIT_SECONDS)

    def pause(self) -> None:
        self._done.put("step")
        try:
            order = self._orders.get(timeout=_WAIT_SECONDS)
        except queue.Empty:  # the test has ended without this run
            order = "die"
        if order == "die":
            raise Killed

    def _work(self) -> None:
        _of_thread.run = self
        try:
            self.result = self.work()
        except (InterleavedError, Killed) as error:
            self.result = error
        self._done.put("ended")


def pause() -> None:
    """End the step of the run that this thread belongs to, if it does."""
    run = getattr(_of_thread, "run", None)
    if run is not None:
        run.pause()


def valid_record(uri: str) -> Record | None:
    """The record at ``uri`` if every output has the stamp that it names."""
    record = read_record(uri, {})
    return record if record is not None and has_its_outputs(record, read_stamp) else None
