"""A Ray cluster for the tests, as deploy/ray/start.sh starts it: nodes with loopback addresses that share no folder."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

from interleaved_assets_tests.ports import free_ports

_START_SECONDS = 180
_OBJECT_STORE_BYTES = 100_000_000
_PATIENT = {
    # Ray would else refuse work where the disk is nearly full, and end what works where the memory is
    "RAY_local_fs_capacity_threshold": "1",
    "RAY_memory_monitor_refresh_ms": "0",
    # on a busy machine, its processes miss these time limits while they start
    "RAY_raylet_start_wait_time_s": str(_START_SECONDS),
    "RAY_agent_register_timeout_ms": str(1000 * _START_SECONDS),
    "RAY_health_check_timeout_ms": "60000",
}
# In a mount namespace of its own, empty folders hide those of the other machines. In a process namespace of its own, a
# node goes down with its first process, as a machine does.
_APART = ("unshare", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_BLIND = ("sh", "-c", 'mount -t tmpfs tmpfs "$1" && mount -t tmpfs -o ro tmpfs "$2" && shift 2 && exec "$@"', "blind")
_HEAD = "127.0.1.1"


@dataclass
class RayCluster:
    """A head without CPUs on this side, and nodes that do not see the folder ``hidden``."""

    start: Path
    port: int
    token: str
    folder: Path
    hidden: Path
    worker_environment: Mapping[str, str]
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """By address."""

    @property
    def environment(self) -> dict[str, str]:
        """What the process of a run needs."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token, "RAY_ADDRESS": f"{_HEAD}:{self.port}"}

    def add_node(self, *arguments: str) -> str:
        """Start a node with one CPU; gives its address. It may take a while until it takes tasks."""
        address = f"127.0.1.{len(self.nodes) + 2}"
        command = [*_APART, *_BLIND, self.folder, self.hidden]
        command += [self.start, "worker", f"{_HEAD}:{self.port}", "--num-cpus=1", *arguments, *_ports()]
        environment = {**self._environment(address), **self.worker_environment}
        with (self.folder.parent / f"{self.folder.name}-{address}.log").open("wb") as log:
            self.nodes[address] = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd="/")
        return address

    def join(self, *, log_to_driver: bool = True) -> None:
        """Join the cluster with this process, which has :attr:`environment`, once the head answers."""
        import ray  # it reads the token when it is imported

        def joined() -> bool:
            with suppress(OSError), socket.create_connection((_HEAD, self.port), timeout=1):
                # ConnectionError is an OSError: the head listens before it takes anyone in
                ray.init(address="auto", configure_logging=False, log_to_driver=log_to_driver)
            return bool(ray.is_initialized())

        wait_for(joined, "the head")

    def kill_node(self, address: str) -> None:
        """Let a node go down at once."""
        self.nodes[address].kill()
        self.nodes[address].wait()

    def _environment(self, address: str) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("INTERLEAVED_")},
            "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]),
            **_PATIENT,
            "RAY_AUTH_TOKEN": self.token,
            "RAY_NODE_IP": address,
        }

    def start_head(self) -> "subprocess.Popen[bytes]":
        (client,) = free_ports(1)
        command = [self.start, "head", "--num-cpus=0", f"--port={self.port}", f"--temp-dir={self.folder}", *_ports()]
        command += ["--include-dashboard=false", f"--ray-client-server-port={client}"]
        with (self.folder.parent / f"{self.folder.name}.log").open("wb") as log:
            return subprocess.Popen(
                command, env=self._environment(_HEAD), stdout=log, stderr=log, cwd="/", start_new_session=True
            )


def _ports() -> list[str]:
    return ["--min-worker-port=0", "--max-worker-port=0", f"--object-store-memory={_OBJECT_STORE_BYTES}"]


@contextmanager
def ray_cluster(start: Path, hidden: Path, worker_environment: Mapping[str, str]) -> Iterator[RayCluster]:
    """A head and no node; ``worker_environment`` is that of the nodes, on top of the test's."""
    if find_spec("ray") is None:
        pytest.skip("no Ray: pip install '.[ray]'")
    refused = subprocess.run([*_APART, *_BLIND, hidden, hidden, "true"], capture_output=True, text=True, check=False)
    if refused.returncode:
        pytest.skip(
            f"no namespaces for the Ray nodes: {refused.stderr.strip()}. In Docker: --security-opt seccomp=unconfined "
            "--security-opt apparmor=unconfined; elsewhere: sysctl kernel.unprivileged_userns_clone=1, or as root"
        )
    # Ray's sockets lie below this folder, and a socket's path has room for 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    (port,) = free_ports(1)
    # Ray reads the token once a process
    token = os.environ.get("RAY_AUTH_TOKEN") or secrets.token_hex(32)
    cluster = RayCluster(start, port, token, folder, hidden, worker_environment)
    head = cluster.start_head()
    try:
        yield cluster
    finally:
        for node in cluster.nodes.values():
            node.kill()
            node.wait()
        head.terminate()
        with suppress(subprocess.TimeoutExpired):
            head.wait(20)
        # what Ray has started in the head's session ends with it, whatever became of the head
        _end_session(head.pid)
        head.wait()
        shutil.rmtree(folder, ignore_errors=True)
        for log in folder.parent.glob(f"{folder.name}*.log"):
            log.unlink()


def _end_session(leader: int) -> None:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if os.getsid(int(entry.name)) == leader:
                os.kill(int(entry.name), signal.SIGKILL)
        except ProcessLookupError:
            continue


def wait_for(is_so: Callable[[], bool], what: str, seconds: float = _START_SECONDS) -> None:
    """Wait until something is so, and fail with ``what`` if it does not come to be."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.2)
