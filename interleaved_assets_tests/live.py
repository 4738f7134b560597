"""A real Dagster for the tests: webserver and daemon as processes of their own, on loopback, spoken to over GraphQL."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter
from dagster._core.execution.backfill import BulkActionStatus

from interleaved_assets_tests.ports import free_port, wait_until_up

ROOT = Path(__file__).parents[1]
_START_SECONDS = 120
_WAIT_SECONDS = 120
"""How long a wait goes on without anything happening in the instance."""
_LONGEST_WAIT_SECONDS = 300
_PROGRESS_SECONDS = 2
"""How often a wait looks whether anything has happened."""
_NEVER_SECONDS = 86_400
_SHOWN_OF_LOG = 2000
_MADE = re.compile(r"^export (DAGSTER_\w+) \?= (\S+)$", re.MULTILINE)
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
mutation ($assets: [AssetKeyInput!]!, $partitions: [String!]!, $tags: [ExecutionTag!]) {
  launchPartitionBackfill(backfillParams: {assetSelection: $assets, partitionNames: $partitions, tags: $tags}) {
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

    def __init__(self, home: Path, environment: Mapping[str, str], reload_seconds: int) -> None:
        self.home, self._reload_seconds = home, reload_seconds
        # sockets of the code servers, which are left over when these are killed; a socket's path has room for 107 bytes
        self._temporary = Path(tempfile.mkdtemp(prefix="live-"))
        self._environment = {**environment, "TMPDIR": str(self._temporary)}
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._killed: set[str] = set()
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
        self._killed.discard(name)
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
        command = ("interleaved_assets_tests.live_daemon", str(self._reload_seconds), "run")
        self.start("daemon", *command, "--workspace", "workspace.yaml")

    def kill(self, name: str) -> None:
        """End a process the hard way; what it has started lives on."""
        self._killed.add(name)
        self.processes[name].kill()
        self.processes[name].wait()

    def kill_all_of(self, name: str) -> None:
        """End a process the hard way, with all it has started."""
        self._killed.add(name)
        os.killpg(self.processes[name].pid, signal.SIGKILL)
        self.processes[name].wait()

    def stop(self) -> None:
        """End everything at once, also what was left over by a process that was killed.

        Nothing of it is needed any more; an orderly end takes some seconds.
        """
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        for process in self.processes.values():
            process.wait()
        shutil.rmtree(self._temporary)

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

    def launch(self, assets: Iterable[str], keys: Iterable[str], tags: Mapping[str, str] | None = None) -> str:
        """Launch a backfill, as the UI does; gives its id. Its runs have the ``tags``."""
        asked = self.ask(
            LAUNCH,
            assets=[{"path": [name]} for name in assets],
            partitions=list(keys),
            tags=[{"key": key, "value": value} for key, value in (tags or {}).items()],
        )
        answer = asked["launchPartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return str(answer["backfillId"])

    def backfill_ended(self, backfill: str) -> str:
        """Wait for the end of a backfill; gives its status."""

        with self.instance() as instance:

            def ended() -> str | None:
                status = instance.get_backfill(backfill).status.value  # type: ignore[union-attr]  # it was launched
                return status if status not in ("REQUESTED", "CANCELING", "FAILING") else None

            return str(self.wait_for(ended, f"the end of the backfill {backfill}"))

    def wait_for(self, happened: Callable[[], Any], what: str, seen: Callable[[], str] | None = None) -> Any:
        """The first true answer of ``happened``, asked five times a second.

        Fails with what was waited for and what was seen instead: once 120 seconds are over in which no run, backfill
        or asset event was added or changed, after 300 seconds, and at once when a service has ended that was not killed
        by the test. A slow machine so has the time that it needs as long as the work goes on.

        Args:
            happened: is asked.
            what: what it asks for.
            seen: what there is instead, where runs and backfills do not say it.
        """
        began = progressed = looked = time.monotonic()
        with self.instance() as instance:
            state = _state(instance)
            while not (answer := happened()):
                time.sleep(0.2)
                now = time.monotonic()
                if now - looked > _PROGRESS_SECONDS:
                    looked = now
                    if state != (state := _state(instance)):
                        progressed = now
                    self._assert_alive(what)
                if now - progressed > _WAIT_SECONDS or now - began > _LONGEST_WAIT_SECONDS:
                    raise AssertionError(
                        f"waited {now - began:.0f} s for {what}, the last {now - progressed:.0f} s without any change. "
                        f"Instead: {seen() if seen else self.activity()}\n{self._end_of_logs()}"
                    )
            return answer

    def activity(self) -> str:
        """Runs and backfills with their status, for people to read."""
        with self.instance() as instance:
            found = [f"backfill {one.backfill_id} {one.status.value}" for one in instance.get_backfills()]
            found += [f"run {run.run_id[:8]} of {run.job_name} {run.status.value}" for run in instance.get_runs()]
        return ", ".join(found) or "no run and no backfill"

    def is_idle(self) -> bool:
        """Whether no run and no backfill is under way."""
        with self.instance() as instance:
            return not instance.get_runs(RunsFilter(statuses=UNFINISHED), limit=1) and not any(
                one.status in (BulkActionStatus.REQUESTED, BulkActionStatus.CANCELING)
                for one in instance.get_backfills()
            )

    def _assert_alive(self, what: str) -> None:
        for name, process in self.processes.items():
            if name not in self._killed and process.poll() is not None:
                raise AssertionError(
                    f"waited for {what}, and the {name} has ended with exit code {process.returncode}\n"
                    f"{self._end_of_logs()}"
                )

    def _end_of_logs(self) -> str:
        return "\n".join(f"{name}.log ends:\n{self.log(name)[-_SHOWN_OF_LOG:]}" for name in self.processes)

    def instance(self) -> AbstractContextManager[DagsterInstance]:
        """The same instance, from inside the test."""
        return opened(self.home)

    def log(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text(errors="replace")


def _state(instance: DagsterInstance) -> object:
    """What changes when anything happens: the newest event of an asset or run, statuses of runs and backfills."""
    return (
        instance.event_log_storage.get_maximum_record_id(),
        [(run.run_id, run.status) for run in instance.get_runs(limit=20)],
        [(one.backfill_id, one.status) for one in instance.get_backfills(limit=20)],
    )


@contextmanager
def live_dagster(
    home: Path,
    settings_file: Path,
    *,
    daemon: bool = True,
    reload_seconds: int = _NEVER_SECONDS,
    monitoring_seconds: int | None = None,
) -> Iterator[LiveDagster]:
    """Webserver and daemon on the project whose settings are in ``settings_file``; ended with the block.

    Args:
        home: becomes the instance's folder, with the project's own ``dagster.yaml``.
        settings_file: the project's settings.
        daemon: whether to start one.
        reload_seconds: how often the daemon loads the definitions anew, which Dagster does every minute by starting
            another code server.
        monitoring_seconds: how often the daemon looks after runs, and after how long it frees the pool slots of one
            that was killed, where that is not as in ``dagster.yaml``.
    """
    home.mkdir(parents=True, exist_ok=True)
    configure(home, monitoring_seconds=monitoring_seconds)
    environment = {
        **dict(_MADE.findall((ROOT / "Makefile").read_text())),  # as make ui starts them
        **os.environ,
        "DAGSTER_HOME": str(home),
        "INTERLEAVED_SETTINGS": str(settings_file),
    }
    live = LiveDagster(home, environment, reload_seconds)
    try:
        with live.instance():
            pass  # made once before the services start: two of them at once have corrupted a fresh SQLite storage
        if daemon:
            live.start_daemon()
        live.start_webserver()
        yield live
    finally:
        live.stop()


@contextmanager
def opened(home: Path) -> Iterator[DagsterInstance]:
    """The instance of a folder with the project's ``dagster.yaml``, which reads ``DAGSTER_HOME``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(home))
        with DagsterInstance.from_config(str(home)) as instance:
            yield instance


def configure(home: Path, *, monitoring_seconds: int | None = None, max_runtime_seconds: int | None = None) -> None:
    """Write the project's ``dagster.yaml`` with these differences; a service that runs needs to be started again.

    Args:
        home: the instance's folder.
        monitoring_seconds: as :func:`live_dagster` has it.
        max_runtime_seconds: after which a run is ended as failed, where that is not as in ``dagster.yaml``.
    """
    config = yaml.safe_load((ROOT / "dagster.yaml").read_text())
    config["run_queue"] |= {"dequeue_interval_seconds": 1, "user_code_failure_retry_delay": 1}  # Dagster's: 5 and 60
    if monitoring_seconds is not None:
        config["run_monitoring"]["poll_interval_seconds"] = monitoring_seconds
        config["run_monitoring"]["free_slots_after_run_end_seconds"] = monitoring_seconds
    if max_runtime_seconds is not None:
        config["run_monitoring"]["max_runtime_seconds"] = max_runtime_seconds
    (home / "dagster.yaml").write_text(yaml.safe_dump(config))
