"""Limits for compressed tars, and filesystems that raise unusual exceptions."""

import gzip
import tarfile
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from interleaved_assets.io.rows.fetch import Access, Source, fetch
from interleaved_assets.io.storage import exists, open_input, read_small
from interleaved_assets.io.storage.limits import TarLimits
from interleaved_assets.io.tar.reader import InterleavedWebdatasetReader, read_tar_shard
from interleaved_assets.model.errors import ShardError, StorageError
from interleaved_assets_tests.io.tars import pack

DOCUMENT = {"texts": ["a"], "images": [None]}


def bomb(path: Path) -> str:
    """A few kB that unpack to 20 MB."""
    path.write_bytes(gzip.compress(pack([("a.json", DOCUMENT), ("a.bin", bytes(20_000_000))])))
    return str(path)


def fetched(uri: str, member: str, **limits: int) -> bytes | str:
    wanted = Source(uri, member)
    result = fetch([wanted], Access(limits=TarLimits(2**20)._replace(**limits)))[wanted]
    return result if isinstance(result, str) else bytes(result)


def test_a_tar_that_unpacks_to_more_than_the_limit_is_refused(tmp_path: Path) -> None:
    uri = bomb(tmp_path / "a.tar.gz")
    with pytest.raises(ShardError, match=r"a\.tar\.gz unpacks to more than 10000000 bytes\. Raise max_unpacked_bytes"):
        list(read_tar_shard(uri, limits=TarLimits(max_unpacked_bytes=10_000_000)))
    with pytest.raises(ShardError, match="unpacks to more than 1000000 bytes"):
        list(InterleavedWebdatasetReader(uri, read_kwargs={"max_unpacked_bytes": "1MB"}))
    limits = TarLimits(max_unpacked_bytes=30_000_000)
    assert sum(table.num_rows for table in read_tar_shard(uri, limits=limits)) > 0
    assert fetched(uri, "a.json", max_unpacked_bytes=10_000_000).startswith(
        f"unreadable_source: {uri} unpacks to more than 10000000 bytes"
    )
    assert fetched(uri, "a.json", max_unpacked_bytes=30_000_000) == b'{"texts": ["a"], "images": [null]}'
    assert fetched(uri, "a.bin", max_unpacked_bytes=30_000_000).startswith("member_too_large: a.bin of ")


def test_a_pax_header_of_any_size_is_never_read_whole(tmp_path: Path) -> None:
    info = tarfile.TarInfo("PaxHeaders/a")
    info.type, info.size = tarfile.XHDTYPE, 6 * 2**30
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(info.tobuf(tarfile.USTAR_FORMAT) + bytes(4096)))
    assert fetched(str(path), "a").startswith(f"unreadable_source: {path} is not a sound tar: the tar has a damaged")


@pytest.mark.parametrize("mode", ["gz", "bz2", "xz"])
def test_members_of_compressed_tars(mode: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.tar.{mode}"
    with tarfile.open(path, f"w:{mode}") as tar:
        (tmp_path / "b").write_bytes(b"content")
        tar.add(tmp_path / "b", "b")
    assert fetched(str(path), "b") == b"content"
    assert fetched(str(path), "c") == f"missing_member: c is not in {path}"


class Failing(MemoryFileSystem):
    """Raises what no list of exceptions foresees."""

    protocol = "failing"
    cachable = False

    def _open(self, *_: object, **__: object) -> object:
        return Broken()

    def info(self, *_: object, **__: object) -> dict[str, object]:
        raise RuntimeError("the backend is gone")

    def cat_file(self, *_: object, **__: object) -> bytes:
        raise RuntimeError("the backend is gone")

    def cat_ranges(self, *_: object, **__: object) -> list[bytes]:
        raise RuntimeError("the backend is gone")


class Broken:
    def read(self, _size: int = -1) -> bytes:
        raise RuntimeError("the backend is gone")

    def close(self) -> None:
        pass


@pytest.fixture
def failing() -> str:
    fsspec.register_implementation("failing", Failing, clobber=True)
    return "failing://a.tar"


def test_any_filesystem_exception_becomes_a_storage_error(failing: str) -> None:
    message = r"cannot (read|look at) failing://a\.tar: the backend is gone\."
    with pytest.raises(StorageError, match=message), open_input(failing) as file:
        file.read()
    for call in (read_small, exists, lambda uri: list(read_tar_shard(uri))):
        with pytest.raises(StorageError, match=message):
            call(failing)


@pytest.mark.parametrize("source", [("member",), (), (None, 0, 4)], ids=["member", "whole", "range"])
def test_a_filesystem_exception_for_a_source_ref_is_a_row_error(failing: str, source: tuple[object, ...]) -> None:
    wanted = Source(failing, *source)
    result = fetch([wanted], Access(limits=TarLimits(max_member_bytes=100)))[wanted]
    assert str(result).startswith("unreadable_source: cannot read failing://a.tar: the backend is gone.")


def test_an_error_in_the_block_is_not_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(RuntimeError, match="mine"), open_input(str(tmp_path / "a")):
        raise RuntimeError("mine")
