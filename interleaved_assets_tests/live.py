"""A real Dagster for the tests: webserver and daemon as processes of their own, on loopback, spoken to over GraphQL."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dagster import DagsterInstance

ROOT = Path(__file__).parents[1]
_START_SECONDS = 90


class LiveDagster:
    """A running webserver and daemon over one project."""

    def __init__(self, url: str, home: Path, environment: Mapping[str, str]) -> None:
        self.url, self.home, self._environment = url, home, dict(environment)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str) -> None:
        """Start a process (again); its output goes to ``<name>.log`` in the instance's folder."""
        with (self.home / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", *command], cwd=ROOT, env=self._environment, stdout=log, stderr=log
            )

    def start_daemon(self) -> None:
        self.start("daemon", "dagster._daemon", "run", "--workspace", "workspace.yaml")

    def kill(self, name: str) -> None:
        """End a process the hard way."""
        self.processes[name].kill()
        self.processes[name].wait()

    def ask(self, query: str, **variables: Any) -> Any:
        """The ``data`` of a GraphQL answer; an error in it fails the test."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            content = json.load(answer)
        assert "errors" not in content, content["errors"]
        return content["data"]

    def instance(self) -> DagsterInstance:
        """The same instance, from inside the test."""
        return DagsterInstance.from_config(str(self.home))

    def log(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text(errors="replace")


def wait_for(happened: Callable[[], Any], seconds: float, what: str) -> Any:
    """The first true answer of ``happened``, asked twice a second."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := happened():
            return answer
        time.sleep(0.5)
    raise AssertionError(f"{what} did not happen within {seconds:.0f} s")


@contextmanager
def live_dagster(home: Path, settings_file: Path, *, daemon: bool = True) -> Iterator[LiveDagster]:
    """Webserver and daemon on the project whose settings are in ``settings_file``; ended with the block."""
    home.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "dagster.yaml", home / "dagster.yaml")
    environment = {**os.environ, "DAGSTER_HOME": str(home), "INTERLEAVED_SETTINGS": str(settings_file)}
    with DagsterInstance.from_config(str(home)):
        pass  # made once before the services start: two of them at once have corrupted a fresh SQLite storage
    port = _free_port()
    live = LiveDagster(f"http://127.0.0.1:{port}", home, environment)
    with ExitStack() as stack:
        stack.callback(_stop, live)
        arguments = ("--host", "127.0.0.1", "--port", str(port), "--workspace", "workspace.yaml")
        live.start("webserver", "dagster_webserver", *arguments)
        if daemon:
            live.start_daemon()
        wait_for(lambda: _answers(live), _START_SECONDS, f"the webserver's start ({home}/webserver.log)")
        yield live


def _answers(live: LiveDagster) -> bool:
    try:
        return bool(live.ask("{ repositoriesOrError { __typename } }"))
    except OSError:
        return False


def _stop(live: LiveDagster) -> None:
    for process in live.processes.values():
        process.terminate()
    for process in live.processes.values():
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
