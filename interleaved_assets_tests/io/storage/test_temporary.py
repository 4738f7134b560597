"""Temporary files of killed, live and concurrent writers, on filesystems with unnamed files and without."""

import errno
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from interleaved_assets.io.storage.atomic import atomic_output
from interleaved_assets.io.storage.temporary import clear_temporaries, has_unnamed_files
from interleaved_assets.model.errors import StorageError
from interleaved_assets_tests.forked import start_forked
from interleaved_assets_tests.io.storage.test_atomic import names, write, write_and_raise
from interleaved_assets_tests.system_calls import failing

TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{32}\.tmp")


@dataclass(frozen=True)
class Writer:
    """A process that is in the middle of writing a file."""

    process: BaseProcess
    pipe: Connection

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def finish(self) -> None:
        self.pipe.send("go on")
        self.process.join()
        assert self.process.exitcode == 0


def write_in_two_steps(path: str, pipe: Connection, is_unnamed: bool) -> None:
    if not is_unnamed:
        del os.O_TMPFILE
    with atomic_output(path) as output:
        output.write(b"of the first writer")
        pipe.send("writing")
        pipe.recv()


@pytest.fixture(params=[True, False], ids=["unnamed", "named"])
def is_unnamed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the filesystem has files without a name."""
    if not request.param:
        monkeypatch.delattr(os, "O_TMPFILE")
    return request.param


@pytest.fixture
def start_writer(is_unnamed: bool) -> Iterator[Callable[[Path], Writer]]:
    """Starts a writer, which goes on when it is told to finish."""
    writers: list[Writer] = []

    def start(path: Path) -> Writer:
        ours, its = Pipe()
        writers.append(Writer(start_forked(write_in_two_steps, str(path), its, is_unnamed), ours))
        assert ours.recv() == "writing"
        return writers[-1]

    yield start
    for writer in writers:
        writer.kill()


def temporaries(folder: Path) -> list[str]:
    """The files that those in ``folder`` are temporary for."""
    return [match[1] for name in names(folder) if (match := TEMPORARY.fullmatch(name))]


def test_what_a_killed_writer_leaves(tmp_path: Path, start_writer, is_unnamed: bool) -> None:
    path = tmp_path / "a.bin"
    write(tmp_path / "b.bin", b"a neighbour")
    writer = start_writer(path)
    writer.kill()
    with pytest.raises(KeyError):
        write_and_raise(str(path), {}, b"", KeyError("one that fails leaves nothing"))
    assert temporaries(tmp_path) == ([] if is_unnamed else ["a.bin"])
    assert has_unnamed_files(tmp_path) == is_unnamed
    clear_temporaries(path)
    write(path, b"short")
    assert names(tmp_path) == ["a.bin", "b.bin"]
    assert path.read_bytes() == b"short"


def test_the_last_commit_of_two_writers_wins(tmp_path: Path, start_writer) -> None:
    path = tmp_path / "a.bin"
    first = start_writer(path)
    write(path, b"second")
    assert path.read_bytes() == b"second"
    first.finish()
    assert names(tmp_path) == ["a.bin"]
    assert path.read_bytes() == b"of the first writer"


def test_only_leftovers_of_the_given_file_are_removed(tmp_path: Path) -> None:
    for name in ("a.bin", "a.bin.0", "b.bin"):
        (tmp_path / f".{name}.{'0f' * 16}.tmp").touch()
    clear_temporaries(tmp_path / "a.bin")
    assert temporaries(tmp_path) == ["a.bin.0", "b.bin"]
    clear_temporaries(tmp_path / "no folder" / "a.bin")


def test_long_names_with_the_same_prefix_get_distinct_temporaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE")
    long = "x" * 240
    with atomic_output(str(tmp_path / f"{long}.one")):
        clear_temporaries(tmp_path / f"{long}.two")
    with pytest.raises(StorageError), atomic_output(str(tmp_path / f"{long}.two")):
        clear_temporaries(tmp_path / f"{long}.two")
    assert names(tmp_path) == [f"{long}.one"]


def test_a_filesystem_that_refuses_unnamed_files_gets_random_names(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    with failing("open", str(tmp_path), OSError(errno.EOPNOTSUPP, "Operation not supported")):
        with atomic_output(str(path)) as first:
            first.write(b"1")
            write(path, b"2")
            assert temporaries(tmp_path) == ["a.bin"]
        assert not has_unnamed_files(tmp_path)
    assert names(tmp_path) == ["a.bin"]
    assert path.read_bytes() == b"1"


def test_many_writers_at_once_leave_one_whole_file_and_nothing_else(tmp_path: Path, is_unnamed: bool) -> None:
    path = tmp_path / "a.bin"
    contents = [bytes([number]) * 300_000 for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: write(path, content), contents))
    assert names(tmp_path) == ["a.bin"]
    assert path.read_bytes() in contents
