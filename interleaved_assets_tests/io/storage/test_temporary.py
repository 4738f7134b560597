"""Temporary files of killed, live and concurrent writers."""

import errno
import fcntl
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
from interleaved_assets.io.storage.temporary import clear_temporaries
from interleaved_assets_tests.forked import start_forked
from interleaved_assets_tests.io.storage.test_atomic import names, write, write_and_raise


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


def write_in_two_steps(path: str, pipe: Connection) -> None:
    with atomic_output(path) as output:
        output.write(b"of the first writer")
        pipe.send("writing")
        pipe.recv()


@pytest.fixture
def start_writer() -> Iterator[Callable[[Path], Writer]]:
    """Starts a writer, which goes on when it is told to finish."""
    writers: list[Writer] = []

    def start(path: Path) -> Writer:
        ours, its = Pipe()
        writers.append(Writer(start_forked(write_in_two_steps, str(path), its), ours))
        assert ours.recv() == "writing"
        return writers[-1]

    yield start
    for writer in writers:
        writer.kill()


def test_a_killed_writers_file_is_taken_over_by_the_next(tmp_path: Path, start_writer) -> None:
    path = tmp_path / "a.bin"
    write(tmp_path / "b.bin", b"a neighbour")
    writer = start_writer(path)
    writer.kill()
    assert names(tmp_path) == [".a.bin.0.tmp", "b.bin"]
    with pytest.raises(KeyError):
        write_and_raise(str(path), {}, b"", KeyError("nor does one that fails leave it"))
    assert names(tmp_path) == ["b.bin"]
    writer = start_writer(path)
    writer.kill()
    write(path, b"short")
    assert names(tmp_path) == ["a.bin", "b.bin"]
    assert path.read_bytes() == b"short"  # nothing of the longer text that lay there


def test_a_live_writer_keeps_its_file_and_the_last_commit_wins(tmp_path: Path, start_writer) -> None:
    path = tmp_path / "a.bin"
    first = start_writer(path)
    write(path, b"second")
    clear_temporaries(path)
    assert names(tmp_path) == [".a.bin.0.tmp", "a.bin"]
    assert path.read_bytes() == b"second"
    first.finish()
    assert names(tmp_path) == ["a.bin"]
    assert path.read_bytes() == b"of the first writer"


def test_leftovers_with_higher_numbers_are_removed_by_the_next_writer(tmp_path: Path, start_writer) -> None:
    path = tmp_path / "a.bin"
    writers = [start_writer(path) for _ in range(3)]
    assert names(tmp_path) == [".a.bin.0.tmp", ".a.bin.1.tmp", ".a.bin.2.tmp"]
    for writer in writers[1:]:
        writer.kill()
    write(path, b"fourth")
    assert names(tmp_path) == [".a.bin.0.tmp", "a.bin"]
    writers[0].finish()
    assert names(tmp_path) == ["a.bin"]


def test_only_leftovers_of_the_given_file_are_removed(tmp_path: Path, start_writer) -> None:
    path = tmp_path / "a.bin"
    writers = [start_writer(path), start_writer(path), start_writer(tmp_path / "a.bin.0")]
    for writer in (writers[0], writers[2]):
        writer.kill()
    (tmp_path / f".a.bin.{'0f' * 16}.tmp").touch()  # from where there were no locks
    clear_temporaries(path)
    assert names(tmp_path) == [".a.bin.0.0.tmp", ".a.bin.1.tmp"]
    clear_temporaries(tmp_path / "no folder" / "a.bin")


def test_long_names_with_the_same_prefix_get_distinct_temporaries(tmp_path: Path, start_writer) -> None:
    long = "x" * 240
    writer = start_writer(tmp_path / f"{long}.one")
    write(tmp_path / f"{long}.two", b"2")
    (left,) = (name for name in names(tmp_path) if name.endswith(".tmp"))
    writer.kill()
    clear_temporaries(tmp_path / f"{long}.two")
    assert left in names(tmp_path)
    clear_temporaries(tmp_path / f"{long}.one")
    assert names(tmp_path) == [f"{long}.two"]


def test_a_filesystem_without_locks_gets_random_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    path = tmp_path / "a.bin"
    with atomic_output(str(path)) as first:
        first.write(b"1")
        write(path, b"2")
        (name,) = (name for name in names(tmp_path) if name != "a.bin")
        assert re.fullmatch(r"\.a\.bin\.[0-9a-f]{32}\.tmp", name)
    assert names(tmp_path) == ["a.bin"]
    assert path.read_bytes() == b"1"


def test_many_writers_at_once_leave_one_whole_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    contents = [bytes([number]) * 300_000 for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: write(path, content), contents))
    assert names(tmp_path) == ["a.bin"]
    assert path.read_bytes() in contents
