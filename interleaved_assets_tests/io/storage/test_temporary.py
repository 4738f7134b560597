"""Temporary files of killed, live and concurrent writers, on filesystems with unnamed files and without."""

import errno
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from interleaved_assets.io.storage.atomic import atomic_output
from interleaved_assets.io.storage.temporary import is_temporary, random_name
from interleaved_assets.model.errors import StorageError
from interleaved_assets_tests.forked import start_forked
from interleaved_assets_tests.io.storage.test_atomic import names, write, write_and_raise
from interleaved_assets_tests.system_calls import failing


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


def temporaries(folder: Path) -> int:
    """The number of temporary files in ``folder``."""
    return sum(name.endswith(".tmp") for name in names(folder))


def test_what_a_killed_writer_leaves(tmp_path: Path, start_writer, is_unnamed: bool) -> None:
    path = tmp_path / "a.bin"
    write(tmp_path / "b.bin", b"a neighbour")
    writer = start_writer(path)
    writer.kill()
    with pytest.raises(KeyError):
        write_and_raise(str(path), {}, b"", KeyError("one that fails leaves nothing"))
    write(path, b"short")
    assert temporaries(tmp_path) == (0 if is_unnamed else 1)
    assert names(tmp_path)[-2:] == ["a.bin", "b.bin"]
    assert path.read_bytes() == b"short"


def test_a_file_that_cannot_be_closed_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_unnamed: bool
) -> None:
    write(tmp_path / "a.bin", b"old")
    close = os.close

    def failing_close(descriptor: int) -> None:
        close(descriptor)
        raise OSError(errno.EIO, "the server is away")

    monkeypatch.setattr(os, "close", failing_close)
    with pytest.raises(StorageError, match=r"cannot write .*a\.bin: the server is away"):
        write(tmp_path / "a.bin", b"new")
    assert names(tmp_path) == ["a.bin"]
    assert (tmp_path / "a.bin").read_bytes() == b"old"


def test_the_last_commit_of_two_writers_wins(tmp_path: Path, start_writer) -> None:
    path = tmp_path / "a.bin"
    first = start_writer(path)
    write(path, b"second")
    assert path.read_bytes() == b"second"
    first.finish()
    assert names(tmp_path) == ["a.bin"]
    assert path.read_bytes() == b"of the first writer"


def test_names_of_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_temporary(random_name("a.tar"), "a.tar")
    assert is_temporary(random_name("ä" * 200), "ä" * 200)
    assert not is_temporary(random_name("a.tar"), "b.tar")
    assert not is_temporary("a.tar", "a.tar")
    assert not is_temporary(".a.tar.x.tmp", "a.tar")
    monkeypatch.delattr(os, "O_TMPFILE")
    long = "\N{GRINNING FACE}" * 60
    with atomic_output(str(tmp_path / long)) as first:
        first.write(b"1")
        write(tmp_path / long, b"2")
    assert names(tmp_path) == [long]


def test_a_filesystem_that_refuses_unnamed_files_gets_random_names(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    refused = failing("open", str(tmp_path), OSError(errno.EOPNOTSUPP, "Operation not supported"))
    with refused, atomic_output(str(path)) as first:
        first.write(b"1")
        write(path, b"2")
        assert temporaries(tmp_path) == 1
    assert names(tmp_path) == ["a.bin"]
    assert path.read_bytes() == b"1"


def test_many_writers_at_once_leave_one_whole_file_and_nothing_else(tmp_path: Path, is_unnamed: bool) -> None:
    path = tmp_path / "a.bin"
    contents = [bytes([number]) * 300_000 for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: write(path, content), contents))
    assert names(tmp_path) == ["a.bin"]
    assert path.read_bytes() in contents
