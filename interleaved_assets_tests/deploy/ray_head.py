"""A Ray head for the tests, as deploy/ray/start.sh starts it, on loopback and blind to a folder of the machine's."""

import os
import secrets
import shutil
import subprocess
import sysconfig
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from interleaved_assets_tests.ports import free_ports, wait_until_up

_START_SECONDS = 90
_OBJECT_STORE_BYTES = 100_000_000
# Ray would else refuse work where the disk is nearly full, and end what works where the memory is.
_WHATEVER_IS_LEFT = {"RAY_local_fs_capacity_threshold": "1", "RAY_memory_monitor_refresh_ms": "0"}
# In a mount namespace of its own, an empty read-only folder hides the one named: the node has no part in it. In a
# process namespace of its own, all that Ray starts ends with its first process, wherever it has detached itself to.
_APART = ("unshare", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_BLIND = ("sh", "-c", 'mount -t tmpfs -o ro tmpfs "$1" && shift && exec "$@"', "blind")


@dataclass(frozen=True)
class RayHead:
    """A running head with two CPUs and one GPU, the latter logical where the machine has none."""

    address: str
    token: str

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs that submits to it."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token, "RAY_API_SERVER_ADDRESS": self.address}

    def get(self, path: str) -> bytes:
        """What the job server answers to this token."""
        request = urllib.request.Request(self.address + path, headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=5) as answer:
            body: bytes = answer.read()
            return body


@contextmanager
def ray_head(start: Path, hidden: Path, environment: Mapping[str, str]) -> Iterator[RayHead]:
    """Start a head that cannot see the folder ``hidden``; its steps have ``environment`` on top of the test's."""
    if not shutil.which("ray", path=_path()):
        pytest.skip("no Ray: pip install 'interleaved-assets[ray]'")
    refused = subprocess.run([*_APART, *_BLIND, hidden, "true"], capture_output=True, text=True, check=False)
    if refused.returncode:
        pytest.skip(
            f"no namespaces for the Ray node: {refused.stderr.strip()}. In Docker: --security-opt seccomp=unconfined "
            "--security-opt apparmor=unconfined; elsewhere: sysctl kernel.unprivileged_userns_clone=1, or as root"
        )
    # Ray's sockets lie below this folder, and a socket's path has room for 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    ports = free_ports(3)
    head = RayHead(f"http://127.0.0.1:{ports[0]}", secrets.token_hex(32))
    command = [start, "head", "--num-cpus=2", "--num-gpus=1", f"--port={ports[1]}", f"--temp-dir={folder}"]
    command += [f"--ray-client-server-port={ports[2]}", "--min-worker-port=0", "--max-worker-port=0"]
    command += [f"--object-store-memory={_OBJECT_STORE_BYTES}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*_APART, *_BLIND, hidden, *command],
            env={
                **os.environ,
                "PATH": _path(),
                **_WHATEVER_IS_LEFT,
                **environment,
                "RAY_AUTH_TOKEN": head.token,
                "RAY_JOB_PORT": str(ports[0]),
            },
            stdout=log,
            stderr=log,
            cwd=folder,
        )
    try:
        wait_until_up(process, lambda: head.get("/api/jobs/"), _START_SECONDS, folder / "log")
        yield head
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _path() -> str:
    return os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
