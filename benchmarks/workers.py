"""Worker processes that stay up between timings, so that no timing holds an import.

A worker answers each line of JSON on its standard input with one on its standard output. The first answer, before any
request, names its Python and packages.
"""

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class WorkerFailed(SystemExit):
    """A worker ended instead of answering; what it said is on standard error. Ends the benchmark with this message."""


class Worker:
    """One process running ``script`` with the interpreter ``python``; use it as a context manager."""

    def __init__(self, python: str | Path, script: Path) -> None:
        self.script = script
        self._python = python
        self._process = subprocess.Popen(
            [str(python), str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=script.parent.parent,
        )
        self.versions: dict[str, str] = self._answer()["versions"]

    def another(self) -> "Worker":
        """A new process of the same kind."""
        return Worker(self._python, self.script)

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send one request and wait for its answer.

        Raises:
            WorkerFailed: the process ended instead of answering.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise WorkerFailed(f"{self.script.name} ended with status {self._process.wait()}; see its messages above")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
