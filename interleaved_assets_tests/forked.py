"""Processes of their own for tests that kill one, or that need one without threads: an interpreter takes a second to
import what they need, so they are forked from one process that has imported it and started no threads.
"""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["interleaved_assets_tests.forked_imports"])


def start_forked(function: Callable[..., object], *arguments: Any, output: Path | None = None) -> BaseProcess:
    """Call ``function``, one of a module, in a process of its own.

    Args:
        function: is called there; an exception ends the process with exit code 1.
        *arguments: its arguments, which can be pickled.
        output: the file for what the process writes to stdout and stderr.
    """
    process = _CONTEXT.Process(target=_call, args=(output, function, arguments))
    process.start()
    return process


def run_forked(function: Callable[..., object], *arguments: Any, output: Path, seconds: float = 300) -> tuple[int, str]:
    """Call it and wait for the end of the process; its exit code, minus the number of a signal, and its output."""
    process = start_forked(function, *arguments, output=output)
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError(f"{function.__name__} did not end within {seconds:.0f} s:\n{output.read_text()}")
    return process.exitcode, output.read_text()


def _call(output: Path | None, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    if output is not None:
        with output.open("wb") as file:
            for descriptor in (1, 2):
                os.dup2(file.fileno(), descriptor)
    function(*arguments)
