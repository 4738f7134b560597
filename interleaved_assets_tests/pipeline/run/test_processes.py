"""Worker processes: they work in the environment of their process, and none outlives it or its task."""

import errno
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from multiprocessing.util import Finalize
from pathlib import Path

import pytest

from interleaved_assets.io.rows.processors import processors
from interleaved_assets.model.errors import StorageError, WorkerLost
from interleaved_assets.pipeline.run.many import take_many
from interleaved_assets.pipeline.run.processes import _pool
from interleaved_assets.pipeline.run.record import RAW_SHARDS
from interleaved_assets.pipeline.run.stage import ShardTask, Stage, Work
from interleaved_assets.settings import Settings, load_settings

pytestmark = pytest.mark.project(shards={"a": 1, "b": 2})


def stage(run: object) -> Stage:
    return Stage("measured", (RAW_SHARDS,), 1, settings=lambda _: {}, run=run)  # type: ignore[arg-type]


def lives(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def end_of(pids: list[int]) -> bool:
    """Whether all of these processes end within ten seconds."""
    for _ in range(100):
        if not any(map(lives, pids)):
            return True
        time.sleep(0.1)
    return False


def pids_in(folder: Path, count: int) -> list[int]:
    """The numbers that are the names of files in ``folder``, once there are so many."""
    for _ in range(600):
        if len(found := [int(file.name) for file in folder.iterdir()]) == count:
            return found
        time.sleep(0.1)
    raise AssertionError(found)


@pytest.mark.parametrize(
    ("number", "advice"), [(errno.ENOSPC, "a writable /dev/shm "), (errno.EAGAIN, r"\(ulimit -n, ulimit -u\); ")]
)
def test_workers_that_cannot_be_started_name_what_they_lack(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    def nothing(_: ShardTask) -> Work:
        return Work(outputs={}, data_version="1")

    ran = partial(take_many, [stage(nothing)], ["a", "b"], settings, then=lambda _: None, jobs=2)
    _pool.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr("_multiprocessing.SemLock", full)  # as where /dev/shm is full, or no process can be forked
        with pytest.raises(StorageError, match=rf"{os.strerror(number)}\. .*{advice}.*--jobs 1"):
            list(ran())
    assert len(list(ran())) == 2


def test_a_process_that_cannot_be_run_for_workers_is_named(settings: Settings, tmp_path: Path) -> None:
    """As where another user may not enter the folder of the interpreter."""
    code = (
        "import multiprocessing.spawn, sys; multiprocessing.spawn.set_executable('/bin/false')\n"
        "from interleaved_assets.cli.entry_point import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", code, "--settings", f"{tmp_path}/interleaved.toml", "run", "--jobs", "2"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3], timeout=300)
    assert done.returncode == 2
    assert "interleaved: no worker processes can be started: " in done.stderr
    told = f"The process that forks them ended: let this user run {sys.executable}, with enough memory. Raise the"
    assert told in done.stderr


@pytest.mark.parametrize(
    "files", [10, pytest.param(14, marks=pytest.mark.system)], ids=["for their locks", "for their pipes"]
)
def test_too_few_open_files_for_workers_are_one_line(settings: Settings, tmp_path: Path, files: int) -> None:
    command = [sys.executable, "-m", "interleaved_assets.cli", "--settings", f"{tmp_path}/interleaved.toml", "run"]
    limited = ["sh", "-c", f'ulimit -n {files} && exec "$@"', "sh", *command, "--jobs", "2"]
    done = subprocess.run(limited, capture_output=True, text=True, cwd=Path(__file__).parents[3], timeout=300)
    error, *others = [line for line in done.stderr.splitlines() if line.startswith("interleaved: ")]
    assert (done.returncode, others) == (2, [])
    assert error.startswith("interleaved: no worker processes can be started: ")
    assert "Raise the limits of open files and of processes (ulimit -n, ulimit -u); " in error
    assert "concurrent.futures" not in done.stderr


def test_a_worker_has_its_share_of_the_processors(settings: Settings) -> None:
    def counted(shard: ShardTask) -> Work:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
            return Work(outputs={}, data_version=str(processors()))

    found = list(take_many([stage(counted)], ["a", "b"], settings, then=lambda one: one.record.data_version, jobs=2))
    assert [one.result.shown for one in found] == ["8", "8"]


def test_a_worker_has_the_environment_of_the_call(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def note(shard: ShardTask) -> Work:
        (tmp_path / f"{shard.key}.seen").write_text(f"{os.environ.get('OF_A_TEST')} {os.getpid()}")
        return Work(outputs={}, data_version="1")

    for value in ("first", "second"):
        monkeypatch.setenv("OF_A_TEST", value)
        found = list(take_many([stage(note)], ["a", "b"], settings, then=str, jobs=2))
        assert [type(one.result).__name__ for one in found] == ["StageOutcome"] * 2
        for key in "ab":
            (tmp_path / f"out/records/measured/{key}.json").unlink()
            seen, pid = (tmp_path / f"{key}.seen").read_text().split()
            assert (seen, int(pid) == os.getpid()) == (value, False)


def test_a_worker_that_is_killed_between_two_steps_costs_nothing(settings: Settings, tmp_path: Path) -> None:
    """As when another process needs the memory that a worker holds after its work."""
    (tmp_path / "pids").mkdir()

    def note(shard: ShardTask) -> Work:
        (tmp_path / f"pids/{os.getpid()}").touch()
        return Work(outputs={}, data_version="1")

    def take(name: str) -> list[str]:
        found = take_many([replace(stage(note), name=name)], ["a", "b"], settings, then=str, jobs=2)
        return [type(one.result).__name__ for one in found]

    assert take("first") == ["StageOutcome"] * 2
    before = [int(file.name) for file in (tmp_path / "pids").iterdir()]
    os.kill(before[0], signal.SIGKILL)
    while _pool(2).active:  # until the pool has noticed
        time.sleep(0.05)
    assert take("second") == ["StageOutcome"] * 2
    assert end_of(before)


@pytest.mark.system
@pytest.mark.project(shards=dict.fromkeys("abcd", 1))
def test_workers_that_cannot_be_started_again_are_one_error(settings: Settings) -> None:
    def work(shard: ShardTask) -> Work:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    def nothing(shard: ShardTask) -> Work:
        return Work(outputs={}, data_version="1")

    assert len(list(take_many([stage(nothing)], ["a", "b"], settings, then=str, jobs=2))) == 2
    ran = partial(take_many, [replace(stage(work), version=2)], settings=settings, then=str, jobs=2)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
        with pytest.raises(StorageError, match=r"no worker processes can be started: .* \(ulimit -n, ulimit -u\)"):
            list(ran(keys=list("abcd")))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert [type(failed.result) for failed in ran(keys=list("abcd"))] == [WorkerLost] * 4


def test_workers_end_with_a_caller_that_takes_no_more_results(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "pids").mkdir()

    def hang(shard: ShardTask) -> Work:
        if shard.key == "a":
            return Work(outputs={}, data_version="1")
        (tmp_path / f"pids/{os.getpid()}").touch()
        time.sleep(600)
        raise AssertionError(shard.key)

    results = take_many([stage(hang)], ["a", "b"], settings, then=str, jobs=2)
    assert next(results).key == "a"
    pids = pids_in(tmp_path / "pids", 1)
    results.close()  # type: ignore[attr-defined]
    assert end_of(pids)


def take_both(file: Path) -> None:
    """Take two shards through a stage on workers, in a process of its own."""
    done = stage(lambda shard: Work(outputs={}, data_version="1"))
    assert len([*take_many([done], ["a", "b"], load_settings(file), then=str, jobs=2)]) == 2
    # as the locks of the workers are removed, which a worker that is only starting has to open
    Finalize(None, note_workers, args=(file.with_name("workers"),), exitpriority=0)


def note_workers(file: Path) -> None:
    file.write_text(str(len(multiprocessing.active_children())))


@pytest.mark.system
@pytest.mark.usefixtures("settings")
def test_a_run_that_a_code_server_of_dagster_has_started_ends_with_its_workers(tmp_path: Path) -> None:
    """Such a process is one of multiprocessing, which waits for its children before it calls the hooks of atexit."""
    run = multiprocessing.get_context("spawn").Process(target=take_both, args=(tmp_path / "interleaved.toml",))
    run.start()
    run.join(120)
    exit_code = run.exitcode
    run.kill()
    assert exit_code == 0
    assert (tmp_path / "workers").read_text() == "0"


_KILLED = """
import os, sys, time
from pathlib import Path
from interleaved_assets.pipeline.run.many import take_many
from interleaved_assets.pipeline.run.record import RAW_SHARDS
from interleaved_assets.pipeline.run.stage import Stage
from interleaved_assets.settings import load_settings

folder = Path(sys.argv[1])

def hang(shard):
    (folder / f"pids/{os.getpid()}").touch()
    time.sleep(600)

stage = Stage("measured", (RAW_SHARDS,), 1, settings=lambda _: {}, run=hang)
list(take_many([stage], ["a", "b"], load_settings(folder / "interleaved.toml"), then=str, jobs=2))
"""


@pytest.mark.usefixtures("settings")
@pytest.mark.system
def test_workers_end_with_a_run_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "pids").mkdir()
    with subprocess.Popen([sys.executable, "-c", _KILLED, str(tmp_path)]) as run:
        pids = pids_in(tmp_path / "pids", 2)
        run.send_signal(signal.SIGKILL)
    assert end_of(pids)


_INTERRUPTED = (
    """
import atexit, multiprocessing.util, threading

replaced = threading.Event()
atexit.register(replaced.wait)  # hooks run in reverse order: after Pebble's, before that of multiprocessing
"""
    + _KILLED.partition("list(take_many")[0]
    + """
import signal
from pebble.pool.process import WorkerManager

make = WorkerManager.new_worker

def make_slowly(manager):
    is_replacing = any((folder / "pids").iterdir())
    if is_replacing:
        (folder / "replacing").touch()
        time.sleep(1)
    make(manager)
    if is_replacing:
        time.sleep(1)  # until it has what it needs of this process
        replaced.set()

def interrupt():
    while len([*(folder / "pids").iterdir()]) < 2:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

WorkerManager.new_worker = make_slowly
threading.Thread(target=interrupt, daemon=True).start()
try:
    list(take_many([stage], ["a", "b"], load_settings(folder / "interleaved.toml"), then=str, jobs=2))
except KeyboardInterrupt:
    while not (folder / "replacing").exists():
        time.sleep(0.01)
    sys.exit(130)
"""
)


@pytest.mark.usefixtures("settings")
@pytest.mark.system
def test_an_interrupted_run_ends_while_a_worker_is_being_replaced(tmp_path: Path) -> None:
    (tmp_path / "pids").mkdir()
    done = subprocess.run([sys.executable, "-c", _INTERRUPTED, str(tmp_path)], timeout=120)
    assert done.returncode == 130
    assert end_of([int(file.name) for file in (tmp_path / "pids").iterdir()])


_FREEZING = """
import gc, sys
from pathlib import Path
from interleaved_assets.pipeline.run.many import take_many
from interleaved_assets.pipeline.run.record import RAW_SHARDS
from interleaved_assets.pipeline.run.stage import Stage, Work
from interleaved_assets.settings import load_settings

folder = Path(sys.argv[1])

def note(shard):
    (folder / f"{shard.key}.seen").write_text(f"{gc.get_freeze_count()} {'zxingcpp' in sys.modules}")
    return Work(outputs={}, data_version="1")

stage = Stage("measured", (RAW_SHARDS,), 1, settings=lambda _: {}, run=note)
list(take_many([stage], ["a", "b"], load_settings(folder / "interleaved.toml"), then=str, jobs=2))
"""


@pytest.mark.usefixtures("settings")
@pytest.mark.system
def test_workers_share_imported_modules_out_of_reach_of_collections(tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", _FREEZING, str(tmp_path)]).returncode == 0
    for key in "ab":
        frozen, has_module = (tmp_path / f"{key}.seen").read_text().split()
        assert int(frozen) > 10_000
        assert has_module == "True"
