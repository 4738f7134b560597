"""Servers that the tests start on loopback: free ports for them, the wait until they answer, their end."""

import os
import random
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

_PORTS = range(11_000, 32_768)  # below those that Linux gives to outgoing connections, above those that browsers refuse
_ORDERLY_SECONDS = 20
_SHOWN_OF_LOG = 3000


def free_ports(count: int) -> list[int]:
    """So many different ports of the loopback interface on which nothing listens at the moment.

    A server binds its port only some time later. Until then nothing else takes it: outgoing connections have ports of
    a higher range, and each process of a test run in parallel chooses among ports of its own.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    own = range(_PORTS.start + worker, _PORTS.stop, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    with ExitStack() as stack:
        found: list[int] = []
        for port in random.SystemRandom().sample(own, len(own)):
            with suppress(OSError):  # something listens there
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
                found.append(port)
            if len(found) == count:
                return found
    raise OSError(f"no {count} free ports from {own.start} to {own.stop}")


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]


def wait_until_up(
    process: "subprocess.Popen[bytes]",
    answers: Callable[[], object],
    seconds: float,
    log: Path,
    not_yet: type[Exception] | tuple[type[Exception], ...] = OSError,
) -> None:
    """Ask until the server answers; the test fails with the end of its log once it has died or ``seconds`` are over.

    Args:
        process: the server.
        answers: asks it; raises ``not_yet`` as long as it does not answer.
        seconds: how long it may take.
        log: where it writes what it has to say.
        not_yet: the exceptions that mean so.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            answers()
            return
        except not_yet:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"{process.args!r} did not start:\n{log.read_text(errors='replace')[-_SHOWN_OF_LOG:]}")
            time.sleep(0.1)


def listens(port: int) -> None:
    """Connect to the port once.

    Raises:
        OSError: nothing listens there.
    """
    socket.create_connection(("127.0.0.1", port), timeout=1).close()


def end(*processes: "subprocess.Popen[bytes]") -> None:
    """An orderly end for all of them at once, since they have processes of their own to end; then a hard one."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(_ORDERLY_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
