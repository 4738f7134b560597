"""Releases whose process is killed and that are made again, and releases that two processes make at the same time."""

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from aiobotocore.client import AioBaseClient
from s3fs import S3FileSystem

from interleaved_assets.model.errors import OptionError, StorageError
from interleaved_assets.pipeline.release.make import CARD_FILE, make_release
from interleaved_assets.pipeline.release.manifest import MANIFEST_FILE, read_manifest
from interleaved_assets.pipeline.release.verify import verify_release
from interleaved_assets.settings import Settings, load_settings
from interleaved_assets_tests.documents import document, sharp_image, write_shard
from interleaved_assets_tests.forked import start_forked
from interleaved_assets_tests.projects import take_all
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.s3_gate import s3_gate
from interleaved_assets_tests.system_calls import system_calls


def make_shard(settings: Settings, folder: Path, text: str = "some words") -> None:
    """One shard, whose stages are current."""
    write_shard(folder / "raw/a.tar", {"doc": document(text, sharp_image(1))})
    take_all(settings)


pytestmark = pytest.mark.project(finish=make_shard)


@contextmanager
def watch_files(reached: Callable[[], None]) -> Iterator[None]:
    """Call ``reached`` before each change of a folder: a file gets a name there, or loses one."""
    with system_calls(lambda event, _: reached() if event in ("os.link", "os.rename", "os.remove") else None):
        yield


@contextmanager
def watch_s3(reached: Callable[[], None]) -> Iterator[None]:
    """Call ``reached`` before each request that changes an object."""
    call = AioBaseClient._make_api_call

    async def watched(client: Any, operation: str, arguments: Any) -> Any:
        if operation in ("PutObject", "CompleteMultipartUpload", "DeleteObject", "DeleteObjects"):
            reached()
        return await call(client, operation, arguments)

    AioBaseClient._make_api_call = watched
    yield


def be_killed(file: str, to: str | None, moment: int, environment: dict[str, str]) -> None:
    """Make the release, and be killed after so many changes. Runs in a process of its own."""
    os.environ.update(environment)
    count = 0

    def reached() -> None:
        nonlocal count
        if count == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1

    with watch_s3(reached) if environment else watch_files(reached):
        make_release("v1", load_settings(file), to=to, documents=to is not None and not environment)


def kill_at(moment: int, folder: Path, to: str | None, environment: dict[str, str] | None = None) -> None:
    process = start_forked(be_killed, str(folder / "interleaved.toml"), to, moment, environment or {})
    process.join(60)
    assert process.exitcode == -signal.SIGKILL, moment


def files(*folders: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}


def assert_sound(uri: str) -> None:
    assert [one for one in verify_release(read_manifest(uri), uri) if one is not None] == []


@pytest.mark.parametrize(("copied", "every"), [pytest.param(True, 1, marks=pytest.mark.system), (False, 3)])
def test_a_release_that_is_killed_at_any_moment_is_completed_by_the_same_call(
    settings: Settings, tmp_path: Path, copied: bool, every: int
) -> None:
    copy, releases = tmp_path / "copy", tmp_path / "out/releases"
    to = str(copy) if copied else None
    moments: list[None] = []
    with watch_files(lambda: moments.append(None)):
        make_release("v1", settings, to=to, documents=copied)
    wanted = files(copy, releases)
    manifest = wanted[str(releases / "v1/manifest.json")]
    # card, index, manifest; with a copy a tar, documents and a second manifest
    assert len(moments) >= (6 if copied else 3)
    for moment in range(1, len(moments), every):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.rmtree(releases)
        kill_at(moment, tmp_path, to)
        if (releases / "v1/manifest.json").exists():  # all files were there
            assert_sound(str(releases / "v1/manifest.json"))
            continue
        made = make_release("v1", settings, to=to, documents=copied)
        assert files(copy, releases) == wanted, moment  # neither another byte nor another file
        assert json.loads(manifest) == made.manifest.model_dump(mode="json"), moment
        assert_sound(made.uri)
    with pytest.raises(OptionError, match="release v1 exists"):
        make_release("v1", settings, to=to)


def test_a_killed_release_of_other_content_is_refused_and_stays(settings: Settings, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    kill_at(1, tmp_path, str(copy))
    assert {path.name for path in copy.iterdir()} == {CARD_FILE, "tars"}
    before = files(copy)
    make_shard(settings, tmp_path, "other words")
    with pytest.raises(OptionError, match=f"{copy} has an unfinished release of other content.*delete {copy} and"):
        make_release("v1", settings, to=str(copy))
    assert files(copy) == before
    shutil.rmtree(copy)
    assert_sound(make_release("v1", settings, to=str(copy)).uri)


def test_a_copy_whose_manifest_was_not_registered_is_registered_if_it_is_sound(
    settings: Settings, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    made = make_release("v1", settings, to=str(copy))
    registered = Path(made.uri)
    registered.unlink()
    with pytest.raises(OptionError, match="holds a release already, and another one than this"):
        make_release("v2", settings, to=str(copy))
    (copy / "tars/a.tar").unlink()
    with pytest.raises(StorageError, match=f"missing: {copy}/tars/a.tar: no such file. Delete {copy} and make"):
        make_release("v1", settings, to=str(copy))
    assert not registered.exists()
    os.link(tmp_path / "out/tars/a.tar", copy / "tars/a.tar")
    assert make_release("v1", settings, to=str(copy)) == made
    assert registered.exists()


def make_when_told(file: str, to: str | None, environment: dict[str, str], pipe: Connection) -> None:
    """Make the release, wait before each manifest until the parent says so, and send what came of it."""
    os.environ.update(environment)

    def wait(event: str, path: str) -> None:
        if event == "os.link" and path.endswith(f"/{MANIFEST_FILE}"):
            pipe.send("ready")
            pipe.recv()

    try:
        with system_calls(wait):
            pipe.send(make_release("v1", load_settings(file), to=to).uri)
    except OptionError as error:
        pipe.send(error)


def make_two_at_once(folder: Path, places: list[str | None], environment: dict[str, str]) -> list[Any]:
    """What two processes get that come to each of their manifests at the same moment."""
    pipes, found = [], []
    for to in places:
        ours, its = Pipe()
        start_forked(make_when_told, str(folder / "interleaved.toml"), to, environment, its)
        pipes.append(ours)
    while pipes:
        answers = [(pipe, pipe.recv()) for pipe in pipes]
        found += [answer for _, answer in answers if answer != "ready"]
        pipes = [pipe for pipe, answer in answers if answer == "ready"]
        for pipe in pipes:
            pipe.send("go on")
    return found


@pytest.mark.parametrize("to", ["nowhere", "one folder", "two folders"])
def test_of_two_processes_one_makes_the_release(settings: Settings, tmp_path: Path, to: str) -> None:
    folders = {"one folder": ["copy", "copy"], "two folders": ["copy", "other"]}.get(to)
    places = [None, None] if folders is None else [str(tmp_path / name) for name in folders]
    uri, error = sorted(make_two_at_once(tmp_path, places, {}), key=lambda found: isinstance(found, OptionError))
    assert "another process has made release v1 at the same time: " in str(error)
    assert uri == str(tmp_path / "out/releases/v1/manifest.json")
    assert_sound(uri)
    for path in tmp_path.rglob("*"):
        assert not path.name.endswith(".tmp")


def test_of_two_processes_one_makes_the_release_in_s3(
    settings: Settings, tmp_path: Path, bucket: str, s3_environment: S3Server
) -> None:
    places: list[str | None] = [f"{bucket}/v1", f"{bucket}/v1"]
    both = Barrier(2)

    def wait(method: str, path: str) -> None:
        if method == "PUT" and path.partition("?")[0].endswith(f"/v1/{MANIFEST_FILE}"):
            both.wait(60)

    with s3_gate(s3_environment) as gate:
        gate.refuses = wait
        found = make_two_at_once(tmp_path, places, gate.environment)
    uri, error = sorted(found, key=lambda one: isinstance(one, OptionError))
    assert f"another process has made release v1 at the same time: {bucket}/v1." in str(error)
    assert_sound(uri)
    assert_sound(f"{bucket}/v1/manifest.json")
    assert sorted(name.rpartition("/v1/")[2] for name in s3_environment.fs.find(f"{bucket}/v1")) == [
        "README.md",
        "manifest.json",
        "tars/a.tar",
        "wids.json",
    ]


def test_a_release_in_s3_is_made_where_the_answer_to_its_manifest_is_lost(
    settings: Settings, bucket: str, s3_environment: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client repeats the request, and the store refuses the repeated one, since there is a manifest."""
    manifests: list[str] = []

    def breaks_off(method: str, path: str) -> bool:
        if method != "PUT" or not path.partition("?")[0].endswith(MANIFEST_FILE):
            return False
        manifests.append(path)
        return len(manifests) == 1

    with s3_gate(s3_environment) as gate:
        gate.breaks_off = breaks_off
        monkeypatch.setenv("AWS_ENDPOINT_URL", gate.endpoint_url)
        monkeypatch.setattr(S3FileSystem, "_cache", {})
        made = make_release("v1", settings, to=f"{bucket}/v1")
    assert len(manifests) == 2  # the second is refused
    assert_sound(made.uri)
    assert_sound(f"{bucket}/v1/{MANIFEST_FILE}")


# after the tar, and before the manifest of the copy
@pytest.mark.parametrize("moment", [2, pytest.param(3, marks=pytest.mark.system)])
def test_a_release_that_is_killed_while_it_is_copied_to_s3_is_completed_by_the_same_call(
    settings: Settings, tmp_path: Path, bucket: str, s3_environment: S3Server, moment: int
) -> None:
    to = f"{bucket}/v1"
    kill_at(moment, tmp_path, to, s3_environment.environment)
    at = f"{to}/manifest.json"
    assert not s3_environment.fs.exists(at)
    assert s3_environment.fs.exists(f"{to}/{CARD_FILE}")
    assert_sound(make_release("v1", settings, to=to).uri)
    assert_sound(at)
