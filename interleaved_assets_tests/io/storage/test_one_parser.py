"""The check of a locator and the opening of its file parse a URL in the same way."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from interleaved_assets.io.rows.fetch import Access, Source, fetch
from interleaved_assets.io.storage import check_allowed, filesystem
from interleaved_assets.io.storage.limits import TarLimits
from interleaved_assets.model.errors import InterleavedError

PREFIXES = (
    "",
    "file:",
    "FILE:",
    "File://",
    "file://",
    "file:///",
    "local:",
    "local://",
    "local:///",
    "data:,",
    "data:",
)
CHAINS = ("", "simplecache::", "SIMPLECACHE::", "file::", "::", "memory://a::")
PARTS = ("..", ".", "", "%2e%2e", "%2F", "~", "raw", "link", "secret", "a.tar", "file:", "local:", "data:", "a::b", "*")


@pytest.mark.parametrize("prefix", ["file:", "local:", "data:"])
def test_a_folder_named_like_a_scheme_is_a_local_path(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "raw"
    below = root / f"{prefix}{tmp_path}/secret"
    below.parent.mkdir(parents=True)
    below.write_bytes(b"allowed")
    (tmp_path / "secret").write_bytes(b"forbidden")
    monkeypatch.chdir(root)
    uri = f"{prefix}{tmp_path}/secret"
    assert check_allowed(uri, [str(root)])
    for source in (Source(uri), Source(uri, None, 0, 7)):
        assert fetch([source], Access(limits=TarLimits(max_member_bytes=100)))[source] == b"allowed"


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chain=st.sampled_from(CHAINS),
    prefix=st.sampled_from(PREFIXES),
    is_absolute=st.booleans(),
    parts=st.lists(st.sampled_from(PARTS), max_size=5),
)
def test_allowed_local_paths_open_below_the_root(
    chain: str, prefix: str, is_absolute: bool, parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "raw"
    for folder in ("raw", "file:", "local:"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    if not (root / "link").is_symlink():
        (root / "link").symlink_to(tmp_path)
    monkeypatch.chdir(root)
    uri = chain + prefix + (f"{root}/" if is_absolute else "") + "/".join(parts)
    if check_allowed(uri, [str(root)]):
        fs, path = filesystem(uri)
        assert fs.protocol == ("file", "local")
        opened = os.path.realpath(fs._strip_protocol(path))
        assert opened == str(root) or opened.startswith(f"{root}/")


@settings(deadline=None)
@given(
    scheme=st.sampled_from(["memory", "MEMORY", "s3", "file", "simplecache::memory"]),
    slashes=st.sampled_from(["://", ":///", "://///", ":/"]),
    start=st.sampled_from(["bucket/raw/", "bucket/raw", "bucket/", ""]),
    parts=st.lists(st.sampled_from((*PARTS, "%5c..", "\\..", "bucket")), max_size=6),
)
@example("memory", "://", "bucket/raw/", ["a.tar"])
@example("memory", "://", "bucket/raw/", ["..", "secret"])
def test_allowed_remote_paths_open_below_the_root(scheme: str, slashes: str, start: str, parts: list[str]) -> None:
    uri = f"{scheme}{slashes}{start}{'/'.join(parts)}"
    is_allowed = check_allowed(uri, ["memory://bucket/raw"])
    assert is_allowed or uri != "memory://bucket/raw/a.tar"  # else nothing here would be compared
    if is_allowed:
        try:
            _, path = filesystem(uri)
        except InterleavedError:
            return  # refused is as good
        assert path == "/bucket/raw" or path.startswith("/bucket/raw/")
        assert ".." not in path.split("/")
