"""Allowed roots of a locator."""

from pathlib import Path

import pytest

from interleaved_assets.io.storage.roots import check_allowed, folders_of
from interleaved_assets.model.errors import OptionError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "raw"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "raw2").mkdir()
    (tmp_path / "secret").touch()
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "up").symlink_to(tmp_path)
    (root / "inside").symlink_to(root / "sub")
    (root / "circle").symlink_to(root / "circle")
    (tmp_path / "alias").symlink_to(root)
    return root


@pytest.mark.parametrize("path", ["a.tar", "sub/a.tar", "sub/../a.tar", "inside/a.tar", "", "circle", "a%2e%2e/b"])
def test_below_a_local_root(root: Path, path: str) -> None:
    assert check_allowed(f"{root}/{path}", [str(root)])
    assert check_allowed(f"file://{root}/{path}", [f"{root}/"])
    assert check_allowed(f"{root}/{path}", ["s3://bucket", str(root.parent / "alias")])


@pytest.mark.parametrize("path", ["../raw2/a.tar", "../secret", "..", "link", "up/secret", "sub/../../secret", "a\0b"])
def test_outside_a_local_root(root: Path, path: str) -> None:
    assert not check_allowed(f"{root}/{path}", [str(root)])


def test_a_sibling_with_the_same_beginning_is_outside(root: Path) -> None:
    assert not check_allowed(f"{root}2/a.tar", [str(root)])


def test_other_storage_is_outside(root: Path) -> None:
    for uri in (f"s3:/{root}/a.tar", "s3://bucket/a.tar", "http://host/a.tar", f"simplecache::file://{root}/a.tar"):
        assert not check_allowed(uri, [str(root)])
    assert not check_allowed(f"{root}/a.tar", ["s3://bucket"])
    assert not check_allowed(f"{root}/a.tar", [])


def test_everything_is_below_the_local_root_directory(root: Path) -> None:
    assert check_allowed("/etc/hostname", ["/"])


@pytest.mark.parametrize("uri", ["s3://bucket/raw/a.tar", "s3a://bucket/raw/sub/a.tar", "S3://bucket/raw"])
def test_below_a_remote_root(uri: str) -> None:
    assert check_allowed(uri, ["s3://bucket/raw"])
    assert check_allowed(uri, ["s3://bucket/raw/"])
    assert check_allowed(uri, ["s3://bucket"])


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bucket/raw2/a.tar",
        "s3://bucket2/raw/a.tar",
        "gs://bucket/raw/a.tar",
        "s3://bucket/a.tar",
        "s3://bucket/raw/../secret",
        "s3://bucket/raw/%2E%2e/secret",
        "s3://bucket/raw/./a.tar",
        "s3://bucket/raw/..%2fsecret",
        "s3://bucket/raw/..\\secret",
        "zip://a::s3://bucket/raw/a.zip",
        "/bucket/raw/a.tar",
    ],
)
def test_outside_a_remote_root(uri: str) -> None:
    assert not check_allowed(uri, ["s3://bucket/raw"])


def test_folders_of_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    found = folders_of(["s3://b/raw/x.tar", "s3://b/raw/y.tar", "/data/a.tar", "rel/b.tar", "/c.tar"])
    assert found == tuple(sorted(["s3://b/raw", "/data", f"{tmp_path}/rel", "/"]))


def test_one_string_of_roots_is_refused() -> None:
    with pytest.raises(
        OptionError, match=r"allowed_roots is a list of folders and URLs, not one string: write \['/a'\]"
    ):
        check_allowed("/etc/hosts", "/a")
