"""All files below a folder: a folder that cannot be listed is an error, and its files are not gone."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractFileSystem

from interleaved_assets.io import InterleavedWebdatasetReader
from interleaved_assets.io.storage import find_files_below, find_infos
from interleaved_assets.model.errors import StorageError
from interleaved_assets_tests.documents import good_shard, refuse_listing


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "in/b", "in/deep/c", "lost+found/d"):
        (tmp_path / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "files" / name).write_text(name)
    return tmp_path / "files"


def test_all_files_are_found(folder: Path) -> None:
    found = find_infos(LocalFileSystem(), str(folder))
    assert {os.path.relpath(path, folder): info["size"] for path, info in found.items()} == {
        "a": 1,
        "in/b": 4,
        "in/deep/c": 9,
        "lost+found/d": 12,
    }
    assert find_infos(LocalFileSystem(), f"{folder}/none") == find_infos(LocalFileSystem(), f"{folder}/a") == {}


def test_a_link_has_size_and_time_of_its_file(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "in/b")
    (folder / "nowhere").symlink_to(folder / "none")
    (folder / "to_folder").symlink_to(folder / "in")
    os.utime(folder / "in/b", (1e9, 1e9))
    found = find_infos(LocalFileSystem(), str(folder))
    assert (found[f"{folder}/link"]["size"], found[f"{folder}/link"]["mtime"]) == (4, 1e9)
    assert (found[f"{folder}/nowhere"]["type"], found[f"{folder}/to_folder"]["type"]) == ("other", "other")


def test_a_folder_that_cannot_be_listed_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_listing(monkeypatch, folder / "in/deep", folder / "lost+found")
    found = find_files_below(LocalFileSystem(), str(folder))
    assert sorted(found.infos) == [f"{folder}/a", f"{folder}/in/b"]
    assert list(found.refused) == [f"{folder}/in/deep"]  # root's own folder of a disk is passed over
    with pytest.raises(StorageError, match=rf"^cannot list {folder}/in/deep: Permission denied. Grant "):
        find_infos(LocalFileSystem(), str(folder))
    refuse_listing(monkeypatch, folder)
    with pytest.raises(PermissionError):
        find_files_below(LocalFileSystem(), str(folder))


def test_a_hidden_folder_that_cannot_be_listed_is_passed_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (".Trash-0", ".snapshot/1"):
        (folder / name).mkdir(parents=True)
        refuse_listing(monkeypatch, folder / name)
    assert find_files_below(LocalFileSystem(), str(folder)).refused == {}
    (folder / "..data").mkdir()  # is none
    refuse_listing(monkeypatch, folder / "..data")
    assert list(find_files_below(LocalFileSystem(), str(folder)).refused) == [str(folder / "..data")]


def test_no_reader_passes_over_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good_shard(tmp_path / "a.tar")
    good_shard(tmp_path / "in/b.tar")
    refuse_listing(monkeypatch, tmp_path / "in")
    with pytest.raises(StorageError, match=rf"cannot list {tmp_path}/in: Permission denied"):
        list(InterleavedWebdatasetReader(str(tmp_path)))


class Store(AbstractFileSystem):
    """A store as clients of fsspec have it: it keeps its listings, and refuses to list the folder ``in/deep``."""

    cachable = False
    files: tuple[str, ...] = ("top/a", "top/in/b", "top/in/deep/c", "top/other/d")
    error: Exception | None = PermissionError(13, "Permission denied")

    def listing(self, path: str) -> list[dict[str, Any]]:
        path = path.strip("/")
        if path in self.dircache:
            return list(self.dircache[path])
        if path == "top/in/deep" and self.error:
            raise self.error
        found = {}
        for file in self.files:
            if file.startswith(f"{path}/"):
                name, _, below = file[len(path) + 1 :].partition("/")
                kind = "directory" if below else "file"
                found[name] = {"name": f"{path}/{name}", "size": 0 if below else 1, "type": kind}
        if not found:
            raise FileNotFoundError(path)
        self.dircache[path] = list(found.values())
        return list(found.values())

    def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        return self.listing(path) if detail else [info["name"] for info in self.listing(path)]

    def invalidate_cache(self, path: str | None = None) -> None:
        """As gcsfs and adlfs do it: of a path, and not of the folders below it."""
        if path is None:
            self.dircache.clear()
        else:
            self.dircache.pop(path.strip("/"), None)


class AsyncStore(AsyncFileSystem, Store):
    """The same with coroutines, as gcsfs, adlfs and s3fs have them; ``find`` and ``ls`` are made from these."""

    ls = AsyncFileSystem.ls

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        return self.listing(path) if detail else [info["name"] for info in self.listing(path)]


STORES: dict[str, Callable[[], tuple[AbstractFileSystem, str]]] = {
    "plain": lambda: (Store(), "top"),
    "async": lambda: (AsyncStore(), "top"),
    # its find is that of the store, which passes over what cannot be listed
    "below another": lambda: (DirFileSystem("top", Store()), ""),
}


@pytest.mark.parametrize("store", STORES)
def test_a_folder_that_a_store_refuses_is_not_taken_for_an_empty_one(store: str) -> None:
    fs, top = STORES[store]()
    found = find_files_below(fs, top)
    prefix = f"{top}/" if top else ""
    assert sorted(found.infos) == [f"{prefix}a", f"{prefix}in/b", f"{prefix}other/d"]
    assert list(found.refused) == [f"{prefix}in/deep"]
    with pytest.raises(StorageError, match="in/deep: Permission denied"):
        find_infos(fs, top)


def test_an_error_that_only_a_client_knows_ends_the_listing() -> None:
    """As gcsfs.retry.HttpError and azure.core's errors, which are no OSErrors."""

    class HttpError(Exception):
        pass

    fs = AsyncStore()
    fs.error = HttpError("503")
    with pytest.raises(HttpError, match="503"):
        find_files_below(fs, "top")


def test_listings_that_a_store_keeps_are_not_used() -> None:
    fs = AsyncStore()
    fs.error = None
    assert len(find_infos(fs, "top")) == 4
    fs.files += ("top/in/deep/new",)
    assert "top/in/deep/new" in find_infos(fs, "top")


def test_files_in_memory_are_found() -> None:
    fs = MemoryFileSystem()
    try:
        fs.pipe({"/walk/a": b"1", "/walk/in/b": b"12"})
        assert {path: info["size"] for path, info in find_infos(fs, "/walk").items()} == {"/walk/a": 1, "/walk/in/b": 2}
        assert find_infos(fs, "/none") == {}
    finally:
        fs.rm("/walk", recursive=True)
