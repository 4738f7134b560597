"""Processes that parse PDF files: one is started for the first file, and used again for the next ones."""

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

from interleaved_assets.io.pdf.settings import PdfSettings

_MOST_PAGE_BYTES: Final = 2**28
_WORDS_SHOWN: Final = 300
"""Characters of the parser's last words that go into an error."""
_MOST_ENDED: Final = 10
"""Parsers that one file may end: each is a process to start."""
Frame = tuple[dict[str, Any], list[bytes]]


class Parser:
    """A running parser; it reads one file after the other."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "interleaved_assets.io.pdf.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in: IO[bytes] = self._process.stdin
        self._out: IO[bytes] = self._process.stdout
        self.is_idle = True
        """True if the last file was read to its end."""
        self.seconds = 0.0
        """Time that the caller of :meth:`frames` has waited for the parser, of the last file."""

    def frames(
        self, path: Path, settings: PdfSettings, pages_read: int = 0, seconds_used: float = 0
    ) -> Iterator[Frame]:
        """Yield the frames of a file after some pages; the last has ``ended`` or ``late`` if the parser ended early.

        ``seconds_used`` count towards ``max_seconds``, beyond which the parser is ``late``.
        """
        self.is_idle, self.seconds = False, 0.0
        self._errors.seek(0)
        self._errors.truncate()
        place = {"path": str(path), "pages_read": pages_read, "seconds_used": seconds_used}
        request = {**place, **settings.model_dump(mode="json")}
        with suppress(BrokenPipeError):  # its last words are read below
            self._in.write(json.dumps(request).encode() + b"\n")
            self._in.flush()
        while line := self._next_line():
            try:
                head = json.loads(line)
            except ValueError:
                break
            if "done" in head:
                self.is_idle = True
                return
            contents = [self._out.read(size) for size in head["sizes"]]
            if [len(content) for content in contents] != head["sizes"]:
                break
            yield head, contents
        yield {"ended": self._last_words()}, []

    def _next_line(self) -> bytes:
        since = time.monotonic()
        line = self._out.readline(_MOST_PAGE_BYTES)
        self.seconds += time.monotonic() - since
        return line

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        own, *others = reversed(lines or [f"ended with code {self._process.returncode}"])
        return f"{own}: {others[0][-_WORDS_SHOWN:]}" if others else own

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        """End the process and the fork that reads a file."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for file in (self._in, self._out, self._errors):
            with suppress(BrokenPipeError):
                file.close()


_idle: Final[list[Parser]] = []
"""Parsers that have nothing to do; appending to a list and popping are safe among threads."""


@contextmanager
def parser() -> Iterator[Parser]:
    """Lend a parser; one that read its file to the end is used again."""
    try:
        lent = _idle.pop()
        if lent.has_ended():
            lent.close()
            lent = Parser()
    except IndexError:
        lent = Parser()
    try:
        yield lent
    finally:
        if lent.is_idle:
            _idle.append(lent)
        else:
            lent.close()


def read_frames(path: Path, settings: PdfSettings) -> Generator[Frame, None, None]:
    """Yield the frames of a file: one with ``pages``, one for each ``page``, or one with ``refused``.

    A page that ends its parser has ``error``, and another parser reads the pages after it. The last frame has
    ``ended``, the reason, if pages are left: the file took too long, ended ten parsers, or one before its first page.
    """
    pages = read = 0
    seconds = 0.0
    for _ in range(_MOST_ENDED):
        with parser() as lent:
            for head, contents in lent.frames(path, settings, read, seconds):
                if "ended" in head or "late" in head:
                    break
                if "pages" in head and pages:
                    continue  # an earlier parser has said so
                pages, read = head.get("pages", pages), head.get("page", read)
                yield head, contents
            else:
                return
            seconds += lent.seconds
        if "late" in head or not pages:
            break
        read += 1
        yield {"page": read, "blocks": [], "error": f"the parser {head['ended']}"}, []
        if read >= min(pages, settings.max_pages):
            return
    yield {"ended": head.get("ended") or head["late"]}, []


@atexit.register
def close_parsers() -> None:
    """End the parsers that have nothing to do."""
    while _idle:
        _idle.pop().close()


os.register_at_fork(after_in_child=_idle.clear)  # they belong to the parent
