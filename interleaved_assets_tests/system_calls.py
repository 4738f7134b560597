"""What the project asks of the operating system, seen through Python's audit events: whoever asks."""

import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest

See = Callable[[str, str], None]

_SEEN = {"open", "os.rename", "os.link", "os.remove", "os.listdir", "os.scandir"}
_watching: list[See] = []
_of_thread = threading.local()


@contextmanager
def system_calls(see: See) -> Iterator[None]:
    """Call ``see`` with the event and the path just before each call; the call raises what ``see`` raises.

    The path of a rename and of a link is the new one. Calls that ``see`` makes are not seen.
    """
    _install()
    _watching.append(see)
    try:
        yield
    finally:
        _watching.remove(see)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watching or event not in _SEEN or getattr(_of_thread, "is_in_see", False):
        return
    path = arguments[1] if event in ("os.rename", "os.link") else arguments[0]
    if not isinstance(path, str | bytes | os.PathLike):
        return  # a descriptor
    _of_thread.is_in_see = True
    try:
        for see in list(_watching):
            see(event, os.fsdecode(path))
    finally:
        _of_thread.is_in_see = False


@cache
def _install() -> None:
    sys.addaudithook(_hear)  # it stays until the process ends


@contextmanager
def files_opened(ending: str) -> Iterator[list[str]]:
    """The paths that are opened, in order, of those with this ending."""
    found: list[str] = []

    def see(event: str, path: str) -> None:
        if event == "open" and path.endswith(ending):
            found.append(path)

    with system_calls(see):
        yield found


@contextmanager
def failing(event: str, ending: str, error: BaseException) -> Iterator[None]:
    """Each such call on a path with this ending raises ``error``."""

    def see(called: str, path: str) -> None:
        if called == event and path.endswith(ending):
            raise error

    with system_calls(see):
        yield


def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of bytes of each read at a place of a file, from now on."""
    found: list[int] = []
    preadv, pread = os.preadv, os.pread

    def counted_into(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        found.append(preadv(descriptor, buffers, offset))
        return found[-1]

    def counted(descriptor: int, size: int, offset: int) -> bytes:
        data = pread(descriptor, size, offset)
        found.append(len(data))
        return data

    monkeypatch.setattr(os, "preadv", counted_into)
    monkeypatch.setattr(os, "pread", counted)
    return found


def disk_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, reads at a place of a file fail beyond its beginning."""
    preadv = os.preadv

    def failing(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        if offset > 0:
            raise OSError(errno.EIO, "the disk is away")
        return preadv(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", failing)
