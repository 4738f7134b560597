"""Ctrl-C that Python would drop still ends the command."""

import signal
import subprocess
import sys

import pytest

from interleaved_assets.cli.entry_point import interrupts_arrive

DROPPED = """
import signal, sys, time
from interleaved_assets.cli.entry_point import interrupts_arrive

class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        time.sleep(0)

try:
    with interrupts_arrive():
        Finalized()
        print("goes on", flush=True)
        time.sleep(600)
except KeyboardInterrupt:
    print("ended")
"""


def test_an_interrupt_in_a_finalizer_arrives_a_little_later() -> None:
    run = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True, timeout=300)
    assert run.stdout.split("\n") == ["goes on", "ended", ""]
    assert run.stderr == ""


def test_other_errors_of_finalizers_are_still_printed(capsys: pytest.CaptureFixture[str]) -> None:
    class Finalized:
        def __del__(self) -> None:
            raise ValueError("of a finalizer")

    seen: list[object] = []
    before, sys.unraisablehook = sys.unraisablehook, lambda dropped: seen.append(dropped.exc_type)
    try:
        with interrupts_arrive():
            Finalized()
    finally:
        sys.unraisablehook = before
    assert seen == [ValueError]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
