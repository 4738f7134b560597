"""A real Dagster for the tests: webserver and daemon as processes of their own, on loopback, spoken to over GraphQL."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from dagster import DagsterInstance, DagsterRunStatus

from interleaved_assets_tests.ports import end, free_port, wait_until_up

ROOT = Path(__file__).parents[1]
_START_SECONDS = 90
UNFINISHED = [
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]

_LOCATIONS = """
{ workspaceOrError { ... on Workspace {
  locationEntries { locationOrLoadError { __typename ... on PythonError { message } } }
} } }"""
LAUNCH = """
mutation ($assets: [AssetKeyInput!]!, $partitions: [String!]!) {
  launchPartitionBackfill(backfillParams: {assetSelection: $assets, partitionNames: $partitions}) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}"""
_ADD_PARTITION = """
mutation ($key: String!) {
  addDynamicPartition(
    partitionsDefName: "shards", partitionKey: $key,
    repositorySelector: {repositoryName: "__repository__", repositoryLocationName: "interleaved_assets"}
  ) { __typename ... on PythonError { message } ... on UnauthorizedError { message } }
}"""


class LiveDagster:
    """A running webserver and daemon over one project."""

    def __init__(self, home: Path, environment: Mapping[str, str], backfill_seconds: int) -> None:
        self.home, self._environment, self._backfill_seconds = home, dict(environment), backfill_seconds
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._groups: set[int] = set()

    def start(self, name: str, *command: str) -> None:
        """Start a process (again); its output goes to ``<name>.log`` in the instance's folder."""
        with (self.home / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a group of its own, in which its code server and runs are as well
            )
        self.processes[name] = process
        self._groups.add(process.pid)

    def start_webserver(self) -> None:
        """Start it (again), and wait until it answers; the test fails where it cannot load the project."""
        where = ("--host", "127.0.0.1", "--port", str(self._port), "--workspace", "workspace.yaml")
        self.start("webserver", "dagster_webserver", *where)

        def answers() -> None:
            (location,) = self.ask(_LOCATIONS)["workspaceOrError"]["locationEntries"]
            assert location["locationOrLoadError"]["__typename"] == "RepositoryLocation", location

        wait_until_up(self.processes["webserver"], answers, _START_SECONDS, self.home / "webserver.log")

    def start_daemon(self) -> None:
        command = ("interleaved_assets_tests.live_daemon", str(self._backfill_seconds), "run")
        self.start("daemon", *command, "--workspace", "workspace.yaml")

    def kill(self, name: str) -> None:
        """End a process the hard way; what it has started lives on."""
        self.processes[name].kill()
        self.processes[name].wait()

    def kill_all_of(self, name: str) -> None:
        """End a process the hard way, with all it has started."""
        os.killpg(self.processes[name].pid, signal.SIGKILL)
        self.processes[name].wait()

    def stop(self) -> None:
        """End everything, also what was left over by a process that was killed."""
        end(*self.processes.values())
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def ask(self, query: str, **variables: Any) -> Any:
        """The ``data`` of a GraphQL answer; an error in it fails the test."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            content = json.load(answer)
        assert "errors" not in content, content["errors"]
        return content["data"]

    def add_partitions(self, keys: Iterable[str]) -> None:
        """Register shards, as the UI does."""
        for key in keys:
            answer = self.ask(_ADD_PARTITION, key=key)["addDynamicPartition"]
            assert answer["__typename"] == "AddDynamicPartitionSuccess", answer

    def launch(self, assets: Iterable[str], keys: Iterable[str]) -> str:
        """Launch a backfill, as the UI does; gives its id."""
        asked = self.ask(LAUNCH, assets=[{"path": [name]} for name in assets], partitions=list(keys))
        answer = asked["launchPartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return str(answer["backfillId"])

    def backfill_ended(self, backfill: str, seconds: float) -> str:
        """Wait for the end of a backfill; gives its status."""

        with self.instance() as instance:

            def ended() -> str | None:
                status = instance.get_backfill(backfill).status.value  # type: ignore[union-attr]  # it was launched
                return status if status not in ("REQUESTED", "CANCELING", "FAILING") else None

            return str(wait_for(ended, seconds, f"the end of the backfill (see {self.home}/daemon.log)"))

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
def live_dagster(
    home: Path,
    settings_file: Path,
    *,
    daemon: bool = True,
    backfill_seconds: int = 3,
    monitoring_seconds: int | None = None,
    max_runtime_seconds: int | None = None,
) -> Iterator[LiveDagster]:
    """Webserver and daemon on the project whose settings are in ``settings_file``; ended with the block.

    Args:
        home: becomes the instance's folder, with the project's own ``dagster.yaml``.
        settings_file: the project's settings.
        daemon: whether to start one.
        backfill_seconds: how often the daemon looks after backfills, which Dagster sets to 30.
        monitoring_seconds: how often the daemon looks after runs, and after how long it frees the pool slots of one
            that was killed, where that is not as in ``dagster.yaml``.
        max_runtime_seconds: after which it ends a run as failed, where that is not as in ``dagster.yaml``.
    """
    home.mkdir(parents=True, exist_ok=True)
    config = yaml.safe_load((ROOT / "dagster.yaml").read_text())
    if monitoring_seconds is not None:
        config["run_monitoring"]["poll_interval_seconds"] = monitoring_seconds
        config["run_monitoring"]["free_slots_after_run_end_seconds"] = monitoring_seconds
    if max_runtime_seconds is not None:
        config["run_monitoring"]["max_runtime_seconds"] = max_runtime_seconds
    (home / "dagster.yaml").write_text(yaml.safe_dump(config))
    environment = {**os.environ, "DAGSTER_HOME": str(home), "INTERLEAVED_SETTINGS": str(settings_file)}
    live = LiveDagster(home, environment, backfill_seconds)
    with live.instance():
        pass  # made once before the services start: two of them at once have corrupted a fresh SQLite storage
    try:
        if daemon:
            live.start_daemon()
        live.start_webserver()
        yield live
    finally:
        live.stop()
