"""Processes that parse hostile files: one is started when it is needed, and used again until a file ends it."""

import atexit
import os
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, ClassVar, Final, Self

from interleaved_assets.model.errors import StorageError

_WORDS_SHOWN: Final = 300
"""Characters of the parser's last words that go into an error."""


class ParserProcess:
    """A running parser, the Python module :attr:`module`; it reads one file after the other."""

    module: ClassVar[str]

    def __init__(self) -> None:
        try:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
                # an unbuffered answer would lose what a process that is stopped and continued has left to write
                env=os.environ | {"PYTHONUNBUFFERED": ""},
            )
        except OSError as error:
            raise StorageError(
                f"the parser process {self.module} cannot be started: {error.strerror}. It needs a process, open files "
                f"and memory (ulimit -u, -n, -v), and a file in {tempfile.gettempdir()}."
            ) from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in: IO[bytes] = self._process.stdin
        self._out: IO[bytes] = self._process.stdout
        self.is_idle = True
        """True if the last file was read to its end."""

    def _begin(self) -> None:
        """Note that a file is being read, and forget what the parser said of earlier ones."""
        self.is_idle = False
        self._errors.seek(0)
        self._errors.truncate()

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        own, *others = reversed(lines or [f"ended with code {self._process.returncode}"])
        return f"{own}: {others[0][-_WORDS_SHOWN:]}" if others else own

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        """End the process and its forks."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for file in (self._in, self._out, self._errors):
            with suppress(BrokenPipeError):
                file.close()

    @classmethod
    @contextmanager
    def lent(cls) -> Iterator[Self]:
        """Lend a parser; one that read its file to the end is used again."""
        idle: list[Self] = _idle[cls]  # type: ignore[assignment]
        try:
            lent = idle.pop()
            if lent.has_ended():
                lent.close()
                lent = cls()
        except IndexError:
            lent = cls()
        try:
            yield lent
        finally:
            if lent.is_idle:
                idle.append(lent)
            else:
                lent.close()


_idle: Final[defaultdict[type[ParserProcess], list[ParserProcess]]] = defaultdict(list)
"""Parsers that have nothing to do; appending to a list and popping are safe among threads."""


@atexit.register
def close_parsers() -> None:
    """End the parsers that have nothing to do."""
    for parsers in _idle.values():
        while parsers:
            parsers.pop().close()


os.register_at_fork(after_in_child=_idle.clear)  # they belong to the parent
