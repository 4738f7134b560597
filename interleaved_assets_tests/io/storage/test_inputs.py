"""Reading: open_input and local_copy; permanent and transient failures."""

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from botocore.exceptions import EndpointConnectionError, FlexibleChecksumError, NoCredentialsError
from fsspec.implementations.local import LocalFileOpener, LocalFileSystem

from interleaved_assets.io.storage import (
    InputFile,
    as_storage_error,
    atomic_output,
    check_allowed,
    exists,
    find_files,
    list_stamps,
    local_copy,
    open_input,
    read_small,
    read_stamp,
    storage_errors,
)
from interleaved_assets.model.errors import MissingDependency, OptionError, StorageError, StorageUnavailable
from interleaved_assets_tests.elsewhere import elsewhere
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.s3_gate import BAD_GATEWAY, EXPIRED, SKEWED, Refusal, s3_gate
from interleaved_assets_tests.s3_requests import counted_requests


def test_exists_finds_files_and_folders(tmp_path: Path, s3_server: S3Server, bucket: str) -> None:
    (tmp_path / "a.bin").touch()
    assert exists(str(tmp_path / "a.bin"))
    assert exists(str(tmp_path))
    assert not exists(str(tmp_path / "b.bin"))
    s3_server.fs.pipe(f"{bucket}/a.bin", b"1")
    options = s3_server.storage_options
    assert exists(f"{bucket}/a.bin", options)
    assert not exists(f"{bucket}/b.bin", options)
    assert not exists("s3://no-such-bucket/a.bin", options)
    # not to be told from a missing file by whoever only asks whether it is there, and overwrites it then
    with pytest.raises(StorageError, match="pass valid credentials"):
        exists(f"{bucket}/a.bin", {**options, "secret": "wrong"})


def test_a_local_input_is_seekable(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"0123456789")
    with open_input(str(path)) as file:
        assert (file.seek(2), file.read(3)) == (2, b"234")
    with open_input(path.as_uri()) as file:
        assert file.read() == b"0123456789"


def test_a_remote_input_is_seekable(s3_server: S3Server, bucket: str) -> None:
    s3_server.fs.pipe(f"{bucket}/a.bin", b"0123456789")
    with open_input(f"{bucket}/a.bin", s3_server.storage_options) as file:
        assert file.seek(7) == 7
        assert file.read() == b"789"


def test_a_remote_input_is_the_newest_version(s3_server: S3Server, bucket: str) -> None:
    s3_server.fs.pipe(f"{bucket}/a.bin", b"old")
    assert s3_server.fs.ls(bucket)  # now its size and ETag are in fsspec's cache
    other = S3Server(s3_server.endpoint_url).fs.__class__(skip_instance_cache=True, **s3_server.storage_options)
    other.pipe(f"{bucket}/a.bin", b"a newer one")
    with open_input(f"{bucket}/a.bin", s3_server.storage_options) as file:
        assert file.read() == b"a newer one"


class ListedOnce(LocalFileSystem):
    """Files of the machine; it knows those of a folder that it has listed, as adlfs does, until all is forgotten."""

    protocol = "listed-once"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(str(path).removeprefix("listed-once://"))

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        found = super().ls(path, detail=True, **options)
        self.dircache[path] = found
        return found if detail else [info["name"] for info in found]

    def info(self, path: Any, **options: Any) -> dict[str, Any]:
        known = {info["name"]: info for infos in self.dircache.values() for info in infos}
        return dict(known.get(path) or super().info(path, **options))

    def invalidate_cache(self, path: str | None = None) -> None:
        if path is None:
            self.dircache.clear()
        else:
            self.dircache.pop(path, None)  # but not the listing of its folder


def test_a_client_whose_seek_returns_nothing_is_sought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of SFTP does not."""
    (tmp_path / "a.bin").write_bytes(b"0123456789")
    monkeypatch.setattr(LocalFileOpener, "seek", lambda self, *where: self.f.seek(*where) and None)
    with open_input(elsewhere(tmp_path / "a.bin")) as file:
        assert file.seek(7) == 7
        assert file.read() == b"789"


def test_a_file_of_a_listed_folder_is_looked_at_anew(tmp_path: Path) -> None:
    fsspec.register_implementation("listed-once", ListedOnce, clobber=True)
    folder, file = f"listed-once://{tmp_path}", tmp_path / "a.bin"
    file.write_bytes(b"old")
    old = list_stamps(folder)
    file.write_bytes(b"a newer one")
    assert read_stamp(f"{folder}/a.bin") not in (None, old["a.bin"])
    list_stamps(folder)
    file.unlink()
    assert not exists(f"{folder}/a.bin")


def test_a_large_read_takes_parallel_ranges(s3_server: S3Server, bucket: str) -> None:
    content = np.random.default_rng(1).bytes(33 * 2**20 + 1)
    s3_server.fs.pipe(f"{bucket}/a.bin", content)
    with counted_requests() as requests, open_input(f"{bucket}/a.bin", s3_server.storage_options) as file:
        assert (file.seek(1), file.read(100), file.read(), file.read()) == (1, content[1:101], content[101:], b"")
    assert sum(request.startswith("GET") for request in requests) == 1 + 4


def test_an_object_that_is_replaced_between_parallel_ranges_is_not_read_on(s3_server: S3Server, bucket: str) -> None:
    s3_server.fs.pipe(f"{bucket}/a.bin", bytes(16 * 2**20))
    with open_input(f"{bucket}/a.bin", s3_server.storage_options) as file:
        s3_server.fs.pipe(f"{bucket}/a.bin", b"1" * 16 * 2**20)
        with pytest.raises(StorageUnavailable, match=r"a\.bin changed while it was read"):
            file.read()


def test_credentials_and_endpoint_may_come_from_the_environment(s3_environment: S3Server, bucket: str) -> None:
    s3_environment.fs.pipe(f"{bucket}/a.bin", b"bytes")
    with open_input(f"{bucket}/a.bin") as file:
        assert file.read() == b"bytes"


def test_a_local_copy_of_a_local_file_is_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"bytes")
    with local_copy(str(path)) as copy:
        assert copy == path


def test_a_local_copy_of_a_remote_file_is_removed_afterwards(s3_server: S3Server, bucket: str) -> None:
    s3_server.fs.pipe(f"{bucket}/folder/a.tar", b"bytes" * 1000)
    with local_copy(f"{bucket}/folder/a.tar", s3_server.storage_options) as copy:
        assert copy.name == "a.tar"
        assert copy.read_bytes() == b"bytes" * 1000
    assert not copy.exists()


_KILLED = """
import os, signal, sys
from interleaved_assets.io.storage import local_copy

with local_copy(sys.argv[1]) as copy:
    assert copy.read_bytes() == b"bytes" * 1000
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_no_bytes_of_its_local_copy(
    s3_environment: S3Server, bucket: str, tmp_path: Path
) -> None:
    s3_environment.fs.pipe(f"{bucket}/a.pdf", b"bytes" * 1000)
    command = [sys.executable, "-c", _KILLED, f"{bucket}/a.pdf"]
    assert subprocess.run(command, env=os.environ | {"TMPDIR": str(tmp_path)}).returncode == -signal.SIGKILL
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


@pytest.mark.parametrize("opener", [open_input, local_copy])
def test_a_missing_file_is_named(opener, tmp_path: Path) -> None:
    path = str(tmp_path / "missing.tar")
    with pytest.raises(StorageError, match=r"cannot read .*missing\.tar: No such file") as caught, opener(path):
        pass
    assert not isinstance(caught.value, StorageUnavailable)


def test_missing_bucket_key_and_wrong_secret_are_permanent_errors(s3_server: S3Server, bucket: str) -> None:
    for uri in ("s3://no-such-bucket/a.tar", f"{bucket}/missing.tar"):
        with pytest.raises(StorageError, match=uri) as caught, open_input(uri, s3_server.storage_options):
            pass
        assert not isinstance(caught.value, StorageUnavailable)
    wrong = {**s3_server.storage_options, "secret": "wrong"}
    with (
        pytest.raises(StorageError, match="Pass the right key and secret") as caught,
        open_input(f"{bucket}/a.tar", wrong),
    ):
        pass
    assert not isinstance(caught.value, StorageUnavailable)


@pytest.mark.parametrize("content", [b"small", b"x" * (2**20 - 1) + b"yz"], ids=["small", "large"])
def test_a_small_object_takes_one_request(s3_environment: S3Server, bucket: str, content: bytes) -> None:
    s3_environment.fs.pipe(f"{bucket}/a.bin", content)
    with counted_requests() as requests, open_input(f"{bucket}/a.bin") as file:
        assert file.seek(0, 2) == len(content)
        assert (file.seek(2), file.read(3)) == (2, content[2:5])
        assert file.read() == content[5:]
        assert file.read() == b""
    assert [request.split()[0] for request in requests] == ["GET"] * (1 if len(content) < 2**20 else 2)


def test_an_empty_object_is_read(s3_environment: S3Server, bucket: str) -> None:
    s3_environment.fs.pipe(f"{bucket}/a.bin", b"")
    with open_input(f"{bucket}/a.bin") as file:
        assert (file.seek(0, 2), file.read()) == (0, b"")


def test_an_unreachable_server_is_storage_unavailable(unused_tcp_port_url: str) -> None:
    options = {"key": "k", "secret": "s", "endpoint_url": unused_tcp_port_url, "config_kwargs": _NO_RETRIES}
    with pytest.raises(StorageUnavailable, match="try again later"):
        exists("s3://bucket/a.tar", options)


_NO_RETRIES = {"retries": {"max_attempts": 0}, "connect_timeout": 1}


@pytest.mark.parametrize(("read", "requests"), [(exists, 2), pytest.param(read_small, 4, marks=pytest.mark.system)])
def test_a_server_that_says_nothing_is_asked_few_times(read: Callable[..., object], requests: int) -> None:
    """Each request takes 15 s by default."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:  # the system accepts connections for it
        options = {"key": "k", "secret": "s", "endpoint_url": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        options["config_kwargs"] = _NO_RETRIES | {"read_timeout": 0.1}
        with pytest.raises(StorageUnavailable, match="try again later"):
            read("s3://bucket/a.json", options)
        silent.setblocking(False)
        asked = 0
        with suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                asked += 1
    assert asked == requests


@pytest.fixture
def unused_tcp_port_url() -> str:
    # port 9 is discard: nothing listens there, and a connection is refused at once
    return "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("error", "may_pass"),
    [
        (TimeoutError("timed out"), True),
        (ConnectionResetError(104, "reset"), True),
        (OSError(16, "SlowDown"), True),
        (EndpointConnectionError(endpoint_url="http://x"), True),
        (NoCredentialsError(), False),
        (FileNotFoundError(2, "No such file"), False),
        (PermissionError(13, "denied"), False),
        (OSError(28, "No space left on device"), False),
    ],
)
def test_transient_errors_are_storage_unavailable(error: Exception, may_pass: bool) -> None:
    found = as_storage_error(error, "s3://b/k", "read")
    assert isinstance(found, StorageUnavailable) is may_pass
    assert str(found).startswith("cannot read s3://b/k: ")


def test_http_status_separates_server_failures_from_refusals() -> None:
    class ClientResponseError(OSError):
        def __init__(self, status: int) -> None:
            self.status = status

    assert isinstance(as_storage_error(ClientResponseError(503), "http://x", "read"), StorageUnavailable)
    assert isinstance(as_storage_error(ClientResponseError(429), "http://x", "read"), StorageUnavailable)
    assert not isinstance(as_storage_error(ClientResponseError(403), "http://x", "read"), StorageUnavailable)


class ResponseError(Exception):
    """The exception of azure's client, which has an HTTP status, or a broken answer as its cause."""

    __module__ = "azure.core.exceptions"

    def __init__(self, status: int | None) -> None:
        super().__init__("refused")
        self.status_code = status


@pytest.mark.parametrize(
    ("status", "cause", "may_pass", "advice"),
    [
        (503, None, True, "try again later"),
        (403, None, False, "Grant access to it, or pass credentials"),
        (None, EndpointConnectionError(endpoint_url="http://x"), True, "try again later"),
    ],
)
def test_a_failed_upload_to_azure_is_a_storage_error(
    status: int | None, cause: Exception | None, may_pass: bool, advice: str
) -> None:
    """Adlfs raises RuntimeError from the exception of the client."""
    failed = ResponseError(status)
    failed.__cause__ = cause
    error = RuntimeError("Failed to upload block: refused!")
    error.__cause__ = failed
    with pytest.raises(StorageError, match=advice) as caught, storage_errors("abfs://c/a", "write"):
        raise error
    assert isinstance(caught.value, StorageUnavailable) is may_pass


def test_a_runtime_error_from_an_oserror_of_other_code_is_no_storage_error() -> None:
    """Pillow raises OSError for a damaged image, and a reader of a plugin RuntimeError from it."""
    error = RuntimeError("bad frame")
    error.__cause__ = OSError("image file is truncated")
    with pytest.raises(RuntimeError, match="bad frame"), storage_errors("s3://b/k", "read"):
        raise error


def test_a_checksum_that_never_holds_names_the_setting_of_the_client() -> None:
    """Some S3 servers send that of the whole object with a part of it."""
    error = as_storage_error(FlexibleChecksumError(error_msg="did not match"), "s3://b/k", "read")
    assert isinstance(error, StorageUnavailable)
    assert "AWS_RESPONSE_CHECKSUM_VALIDATION=when_required" in str(error)


@pytest.mark.parametrize(
    ("refusal", "of_a_look", "of_a_write"),
    [
        (EXPIRED, "the credentials have expired: renew them", "provided token has expired. The credentials have"),
        (SKEWED, "see that this machine's clock is right", "Set this machine's clock"),
    ],
)
def test_s3_refusals_give_advice_by_error_code(
    s3_server: S3Server, bucket: str, refusal: Refusal, of_a_look: str, of_a_write: str
) -> None:
    """To a HEAD, S3 answers without its error code."""
    with s3_gate(s3_server) as gate:
        gate.refuses = lambda method, path: refusal
        with pytest.raises(StorageError, match=of_a_look) as looked:
            exists(f"{bucket}/a.bin", gate.storage_options)
        with (
            pytest.raises(StorageError, match=of_a_write) as written,
            atomic_output(f"{bucket}/a.bin", gate.storage_options) as out,
        ):
            out.write(b"bytes")
    for caught in (looked, written):
        assert not isinstance(caught.value, StorageUnavailable)
        assert ".." not in str(caught.value)


def test_a_failing_gateway_is_storage_unavailable(s3_server: S3Server, bucket: str) -> None:
    with s3_gate(s3_server) as gate:
        options = gate.storage_options | {"config_kwargs": _NO_RETRIES}
        gate.refuses = lambda method, path: BAD_GATEWAY
        with pytest.raises(StorageUnavailable, match="try again later"):
            exists(f"{bucket}/a.bin", options)
        assert gate.refused == [f"HEAD /{bucket.removeprefix('s3://')}/a.bin"]
        gate.refuses = lambda method, path: None
        assert not exists(f"{bucket}/a.bin", options)


@pytest.mark.system
def test_what_breaks_off_several_times_in_the_middle_is_read_again(s3_server: S3Server, bucket: str) -> None:
    content = np.random.default_rng(2).bytes(33 * 2**20)
    s3_server.fs.pipe(f"{bucket}/a.bin", content)
    broken = Counter[str]()

    def breaks_off(method: str, path: str) -> bool:
        with guard:
            broken[f"{method} {path}"] += 1
        return method == "GET" and broken[f"{method} {path}"] in {1, 2, 3, 4, 6, 7, 8}

    guard = threading.Lock()
    with s3_gate(s3_server) as gate:
        gate.breaks_off = breaks_off
        with open_input(f"{bucket}/a.bin", gate.storage_options) as file:
            assert file.read() == content
        broken.clear()
        assert read_small(f"{bucket}/a.bin", gate.storage_options) == content


def test_answers_that_end_too_early_leave_no_gap(s3_server: S3Server, bucket: str) -> None:
    """A proxy that loses its connection to the store may end its own answer as if that was all."""
    content = np.random.default_rng(2).bytes(40 * 2**20)
    s3_server.fs.pipe(f"{bucket}/a.bin", content)
    s3_server.fs.pipe(f"{bucket}/a.json", content[:1000])
    asked = Counter[str]()
    short: set[int] = set()

    def cut(method: str, path: str, answer: bytes) -> bytes:
        with guard:
            asked[path] += 1
        return answer[: len(answer) // 2] if method == "GET" and asked[path] in short else answer

    guard = threading.Lock()
    with s3_gate(s3_server) as gate:
        gate.changes = cut
        for numbers in ({1}, {2}, {3}, {4, 5}):
            short = numbers
            asked.clear()
            with open_input(f"{bucket}/a.bin", gate.storage_options) as file:
                assert file.read() == content
        with open_input(f"{bucket}/a.bin", gate.storage_options) as file:
            short = set(range(1, 100))
            with pytest.raises(StorageUnavailable, match=r"the answer ended after .* try again later"):
                file.read()
        with pytest.raises(StorageUnavailable, match="did not match calculated checksum"):
            read_small(f"{bucket}/a.json", gate.storage_options)
        asked.clear()
        short = {1}
        assert read_small(f"{bucket}/a.json", gate.storage_options) == content[:1000]


def test_an_answer_of_a_web_server_that_ends_too_early_is_not_the_end_of_the_file() -> None:
    content = np.random.default_rng(3).bytes(100_000)
    ranges: list[str | None] = []

    class Short(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(200, content)

        def do_GET(self) -> None:
            ranges.append(self.headers["Range"])
            first, _, last = str(ranges[-1]).removeprefix("bytes=").partition("-")
            wanted = content[int(first) : int(last) + 1]
            self._answer(206, wanted[: len(wanted) // 2] if len(ranges) == 1 else wanted)

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Short) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with open_input(f"http://127.0.0.1:{server.server_port}/a.bin") as file:
            assert file.read(90_000) == content[:90_000]
        server.shutdown()
    assert ranges == ["bytes=0-99999", "bytes=50000-99999"]


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (503, StorageUnavailable, "Service Unavailable.*try again later"),
        (403, StorageError, "Forbidden.*Grant access to it, or pass credentials"),
        (404, StorageError, "Check the path"),
    ],
)
def test_an_answer_of_a_web_server_says_what_to_do(status: int, kind: type[StorageError], said: str) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(status)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/a.tar"
        with pytest.raises(StorageError, match=f"^cannot read {url}: .*{said}") as found, open_input(url):
            pass
        assert type(found.value) is kind
        server.shutdown()


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (PermissionError(13, "Permission denied"), "Grant the user of this process access to it."),
        (OSError(errno.EROFS, "Read-only file system"), "mount it for writing"),
        (OSError(errno.ENAMETOOLONG, "File name too long"), "shorten it"),
        (NotADirectoryError(20, "Not a directory"), "A file exists where a folder is needed"),
        (IsADirectoryError(21, "Is a directory"), "A folder exists where a file is needed"),
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (OSError(errno.EIO, "Input/output error"), "Check the path, storage_options and the storage itself."),
    ],
)
def test_local_errors_give_advice(error: Exception, advice: str) -> None:
    found = as_storage_error(error, "/data/a.tar", "write")
    assert advice in str(found)
    assert str(found).startswith(f"cannot write /data/a.tar: {error.args[1]}. ")
    assert not isinstance(found, StorageUnavailable)


def test_a_name_with_two_colons_is_no_chain_of_filesystems(tmp_path: Path, s3_server: S3Server, bucket: str) -> None:
    for folder in (str(tmp_path), tmp_path.as_uri(), bucket):
        uri, options = f"{folder}/a::b.tar", s3_server.storage_options
        with atomic_output(uri, options) as out:
            out.write(b"bytes")
        assert exists(uri, options)
        with open_input(uri, options) as file:
            assert file.read() == b"bytes"
        (found,) = find_files(folder, (".tar",), options)
        assert found == InputFile(uri.removeprefix("file://"), 5)
        assert check_allowed(found.uri, [folder])
        assert not check_allowed(found.uri, [f"{folder}/b"])


def test_an_unknown_scheme_and_an_absent_package_are_named() -> None:
    with pytest.raises(OptionError, match="cannot reach nope://a: "), open_input("nope://a"):
        pass
    with pytest.raises(MissingDependency, match="cannot reach gs://bucket/a: "), open_input("gs://bucket/a"):
        pass
