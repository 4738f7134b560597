"""All files below a folder: a folder that cannot be listed is an error, and its files are not gone."""

import os
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem

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


def test_no_reader_passes_over_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good_shard(tmp_path / "a.tar")
    good_shard(tmp_path / "in/b.tar")
    refuse_listing(monkeypatch, tmp_path / "in")
    with pytest.raises(StorageError, match=rf"cannot list {tmp_path}/in: Permission denied"):
        list(InterleavedWebdatasetReader(str(tmp_path)))
