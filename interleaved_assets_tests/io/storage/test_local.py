"""Local files that change while they are read, and paths that are not regular files."""

import errno
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interleaved_assets.io.archive.source import open_tar
from interleaved_assets.io.parquet.reader import read_parquet_shard
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.rows.fetch import Access, Source, fetch
from interleaved_assets.io.storage import find_files, local_copy, open_input, read_small
from interleaved_assets.io.storage.limits import TarLimits
from interleaved_assets.io.storage.local import LocalFile
from interleaved_assets.io.tar.reader import read_tar_shard
from interleaved_assets.model.errors import InterleavedError, StorageError, StorageUnavailable
from interleaved_assets_tests.documents import document, write_shard
from interleaved_assets_tests.forked import run_forked


@pytest.fixture(autouse=True)
def time_limit() -> Iterator[None]:
    """A minute: what opens a FIFO may wait for ever."""

    def stop(*_: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def local(path: Path) -> LocalFile:
    return LocalFile(path, str(path))


def test_ranges_reads_and_seeks(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    with local(path) as file:
        assert (file.size, file.read_at(2, 3), file.read_at(8, 5), file.read_at(20, 5)) == (10, b"234", b"89", b"")
        assert (file.read(4), file.read(), file.read(1), file.tell()) == (b"0123", b"456789", b"", 10)
        assert (file.seek(-3, os.SEEK_END), file.readall()) == (7, b"789")
        buffer = bytearray(4)
        assert (file.seek(8), file.readinto(memoryview(buffer)), buffer) == (8, 2, b"89\0\0")


def test_a_file_replaced_by_another_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with local(path) as file:
        (tmp_path / "b").write_bytes(b"new file")
        (tmp_path / "b").replace(path)
        assert file.read() == b"old"


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 3)


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def rewrite(path: Path) -> None:
    size, before = path.stat().st_size, path.stat().st_mtime_ns
    with path.open("r+b") as file:
        file.write(bytes(size))
    os.utime(path, ns=(before + 1, before + 1))  # clocks of filesystems tick in milliseconds


@pytest.mark.parametrize("change", [cut, grow, rewrite])
def test_a_file_that_changes_is_refused(change: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 2_000_000)
    with local(path) as file, open_input(str(path)) as buffered:
        assert file.read_at(0, 10) == buffered.read(10) == b"x" * 10
        change(path)
        with pytest.raises(StorageError, match="a changed while it was read"):
            file.read_at(1000, 10)
        with pytest.raises(StorageError, match="a changed while it was read"):
            buffered.read()


def read_a_shard_that_changes(folder: Path, form: str, change: Callable[[Path], None]) -> None:
    """Print whether the first batch has rows, and the error of those behind the change."""
    path = folder / "a.tar"
    write_shard(path, {f"doc{n}": document("text", b"\x89PNG" + bytes([n]) * 300_000) for n in range(20)})
    batches = read_tar_shard(str(path), materialize=True, max_batch_bytes=700_000)
    if form == "parquet":
        tables, path = list(batches), folder / "a.parquet"
        with parquet_shard(str(path), tables[0].schema, row_group_bytes=700_000) as file:
            for table in tables:
                file.write(table)
        batches = read_parquet_shard(str(path), max_batch_bytes=700_000)
    print(next(batches).num_rows > 0)
    change(path)
    try:
        for _ in batches:
            pass
    except InterleavedError as error:
        print(type(error).__name__, error)


@pytest.mark.parametrize("form", ["tar", "parquet"])
@pytest.mark.parametrize("change", [cut, rewrite])
def test_a_shard_that_changes_while_it_is_read_is_one_error(
    form: str, change: Callable[[Path], None], tmp_path: Path
) -> None:
    # in a process of its own: a memory-mapped file that is cut would end this one with SIGBUS
    code, printed = run_forked(read_a_shard_that_changes, tmp_path, form, change, output=tmp_path / "printed")
    message = f"StorageUnavailable {tmp_path}/a.{form} changed while it was read. Read it again once it is complete."
    assert (code, printed.splitlines()) == (0, ["True", message])


def fifo(path: Path) -> None:
    os.mkfifo(path)


def socket_file(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def linked_fifo(path: Path) -> None:
    os.mkfifo(path.with_suffix(".fifo"))
    path.symlink_to(path.with_suffix(".fifo"))


@pytest.mark.parametrize("make", [fifo, socket_file, device, linked_fifo])
@pytest.mark.parametrize(
    "read",
    [
        lambda path: open_input(path).__enter__(),
        lambda path: local_copy(path).__enter__(),
        lambda path: open_tar(path).__enter__(),
        read_small,
        lambda path: list(read_tar_shard(path)),
        lambda path: list(read_parquet_shard(path)),
        lambda path: find_files(path, (".tar",)),
    ],
    ids=["open_input", "local_copy", "open_tar", "read_small", "read_tar_shard", "read_parquet_shard", "find_files"],
)
def test_only_regular_files_are_opened(
    make: Callable[[Path], None], read: Callable[[str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    make(Path("a.tar"))
    with pytest.raises(StorageError, match="is not a regular file"):
        read(str(tmp_path / "a.tar"))


def test_a_folder_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught:
        list(read_tar_shard(str(tmp_path)))
    assert str(caught.value).startswith(f"cannot read {tmp_path}: it is not a regular file. ")
    assert str(caught.value).count("cannot read") == 1


def test_a_file_that_was_not_opened_closes_without_an_error() -> None:
    """Since Python 3.13 such an error is printed beside the message of the command."""
    file = LocalFile.__new__(LocalFile)
    file.close()
    assert file.closed


@pytest.mark.parametrize("make", [fifo, device, linked_fifo])
def test_folders_are_searched_for_regular_files(make: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "b.tar").write_bytes(b"x")
    (tmp_path / "c.tar").symlink_to(tmp_path / "b.tar")
    make(tmp_path / "a.tar")
    assert [Path(file.uri).name for file in find_files(str(tmp_path), (".tar",))] == ["b.tar", "c.tar"]
    assert [Path(file.uri).name for file in find_files(f"{tmp_path}/*.tar", (".tar",))] == ["b.tar", "c.tar"]


@pytest.mark.parametrize("make", [fifo, device, linked_fifo])
@pytest.mark.parametrize("source", [(), ("member",), (None, 0, 4)], ids=["whole", "member", "range"])
def test_a_source_ref_to_no_regular_file_is_a_row_error(
    make: Callable[[Path], None], source: tuple[object, ...], tmp_path: Path
) -> None:
    make(tmp_path / "a.tar")
    wanted = Source(str(tmp_path / "a.tar"), *source)
    result = fetch([wanted], Access(limits=TarLimits(max_member_bytes=100)))[wanted]
    assert str(result).startswith(f"unreadable_source: cannot read {tmp_path / 'a.tar'}: it is not a regular file")


def test_a_file_whose_name_is_not_utf_8_is_refused_by_its_name(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.tar", {"a": document("text")})
    name = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.tar")
    try:
        shard.rename(name)
    except OSError:
        pytest.skip("this file system has no such names")
    found = find_files(tmp_path, (".tar",))
    assert [file.uri for file in found] == [name]
    for read in (
        lambda: list(read_tar_shard(name)),
        lambda: list(read_parquet_shard(name)),
        lambda: open_input(name).__enter__(),
    ):
        with pytest.raises(StorageError) as caught:
            read()
        assert str(caught.value) == rf"{tmp_path}/caf\udce9.tar: the file's name is not UTF-8; rename it"


def test_a_close_that_fails_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    close = os.close

    def failing(descriptor: int) -> None:
        close(descriptor)  # as Linux does, whatever the file system says
        raise OSError(errno.EIO, "the server is away")

    file = LocalFile(tmp_path / "a", "a")
    with monkeypatch.context() as patched:
        patched.setattr(os, "close", failing)
        with pytest.raises(OSError, match="the server is away"):
            file.close()
    with LocalFile(tmp_path / "b", "b") as other:  # it gets the same number
        file.close()
        assert other.read_at(0, 1) == b"b"


def test_a_read_that_returns_fewer_bytes_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on file systems of a network or of a user."""
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, size, offset: pread(descriptor, max(1, size // 2), offset))
    (tmp_path / "a").write_bytes(b"0123456789")
    with local(tmp_path / "a") as file:
        assert bytes(file.read_at(2, 7)) == b"2345678"
        os.truncate(tmp_path / "a", 5)
        with pytest.raises(StorageUnavailable, match="a changed while it was read"):
            file.read_at(2, 7)


def test_a_file_that_changes_while_images_are_fetched_gives_no_row_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error would be kept in the rows, and a later run would believe it."""
    path, pread = tmp_path / "store.tar", os.pread

    def touched(descriptor: int, size: int, offset: int) -> bytes:
        os.utime(path, (1, 1))
        return pread(descriptor, size, offset)

    path.write_bytes(b"0123456789")
    source = Source(str(path), start=2, end=5)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", touched)
        with pytest.raises(StorageUnavailable, match=r"store\.tar changed while it was read"):
            fetch([source], Access())
    assert fetch([source], Access()) == {source: b"234"}
