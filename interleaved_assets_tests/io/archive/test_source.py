"""Remote tars that become shorter or fail while they are read, and packed ones on a disk that fails.

What else is opened is in ``test_index.py``.
"""

import bz2
import gzip
import io
import lzma
import random
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from interleaved_assets.io.archive.source import open_tar
from interleaved_assets.model.errors import StorageError, StorageUnavailable
from interleaved_assets_tests.system_calls import disk_that_fails

MESSAGE = r"^memory://shrinks\.tar changed while it was read\. Read it again once it is complete\.$"


class Shrinking(MemoryFile):
    """A file that ends at byte ``end`` once its size has been read."""

    end = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        found = super().seek(offset, whence)
        if whence == io.SEEK_END:
            self.truncate(self.end)
        return found


def put(content: bytes, end: int) -> None:
    filesystem = MemoryFileSystem()
    file = Shrinking(filesystem, "/shrinks.tar", content)
    file.end = end
    filesystem.store["/shrinks.tar"] = file


def tar_of_ten() -> bytes:
    """A tar of ten members, each of 1,024 bytes with its header."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for number in range(10):
            info = tarfile.TarInfo(f"{number}.txt")
            info.size = 512
            tar.addfile(info, io.BytesIO(b"x" * 512))
    return packed.getvalue()


@pytest.mark.parametrize("end", [3 * 1024, 3 * 1024 + 100, 3 * 1024 + 512 + 100])
def test_a_remote_tar_that_shrinks_is_not_one_with_fewer_members(end: int) -> None:
    put(tar_of_ten(), end)
    with open_tar("memory://shrinks.tar", by_ranges=True) as tar, pytest.raises(StorageUnavailable, match=MESSAGE):
        _ = tar.index
    put(tar_of_ten(), end)
    with pytest.raises(StorageUnavailable, match=MESSAGE), open_tar("memory://shrinks.tar"):
        pass


def test_a_member_of_a_remote_tar_that_shrinks_is_not_a_shorter_one() -> None:
    put(tar_of_ten(), len(tar_of_ten()))
    with open_tar("memory://shrinks.tar", by_ranges=True) as tar:
        member = tar.index.members[9]
        MemoryFileSystem.store["/shrinks.tar"].truncate(member.offset + 10)
        with pytest.raises(StorageUnavailable, match=MESSAGE):
            tar.content(member)


def test_a_compressed_remote_tar_that_shrinks_to_fewer_gzip_members_is_refused() -> None:
    whole = tar_of_ten()
    first = gzip.compress(whole[: 3 * 1024])
    put(first + gzip.compress(whole[3 * 1024 :]), len(first))
    with pytest.raises(StorageUnavailable, match=MESSAGE), open_tar("memory://shrinks.tar"):
        pass


class Failing(MemoryFile):
    """A file whose storage is away from byte 100,000 on."""

    def read(self, size: int = -1) -> bytes:
        if self.tell() >= 100_000:
            raise ConnectionError("the storage is away")
        return super().read(100_000 if size < 0 else min(size, 100_000))

    def readinto(self, buffer: memoryview) -> int:
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_process_that_is_killed_leaves_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    """A copy without a name ends with its process; a worker that takes too long is killed, with up to a shard in it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    MemoryFileSystem().pipe("/whole.tar", pack(tar_of_ten()))
    with open_tar("memory://whole.tar") as tar:
        assert tar.is_on_disk
        assert len(tar.index.members) == 10
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_a_storage_that_fails_is_neither_damage_nor_a_full_scratch_folder(pack: Callable[[bytes], bytes]) -> None:
    content = pack(tar_of_ten() + random.Random(1).randbytes(400_000))
    filesystem = MemoryFileSystem()
    filesystem.store["/fails.tar"] = Failing(filesystem, "/fails.tar", content)
    told = r"^cannot read memory://fails\.tar: the storage is away\. The storage failed or did not respond"
    with pytest.raises(StorageUnavailable, match=told), open_tar("memory://fails.tar"):
        pass


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_disk_that_fails_is_neither_damage_nor_a_full_scratch_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    packed = tmp_path / "a.tar.packed"
    packed.write_bytes(pack(tar_of_ten() + random.Random(1).randbytes(400_000)))
    disk_that_fails(monkeypatch)
    with pytest.raises(StorageError, match=rf"^cannot read {packed}: the disk is away"), open_tar(str(packed)):
        pass
