import itertools
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.pipeline.raw.keys import (
    MAX_KEY_BYTES,
    is_cut,
    is_key,
    is_shard,
    preference,
    shard_key,
    shard_paths,
)

TAR_ENDINGS = [".tar", ".tar.gz", ".tgz", ".TAR", ".TAR.GZ", ".TGZ"]
ENDINGS = [*TAR_ENDINGS, ".parquet", ".Parquet"]

# pieces that have a meaning of their own somewhere: in keys, in selections, in URLs, in file systems
PIECES = [
    "a",
    "b",
    "/",
    "//",
    ".",
    "..",
    "...",
    ",",
    "~",
    "%",
    "%2F",
    " ",
    "?",
    "*",
    "[",
    "ü",
    "😀",
    ".tar",
    ".tar.gz",
    ".TAR",
    "\n",
    ".parquet",
]


def is_stem(text: str) -> bool:
    """Whether ``text`` with an ending is the path of a shard: its last part is a name and not hidden."""
    return not text.rpartition("/")[2].startswith(".") and not text.endswith("/") and text != ""


stems = (st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(max_size=300)).filter(is_stem)
paths = st.builds(lambda stem, extension: stem + extension, stems, st.sampled_from(ENDINGS))


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("pdf-000.tar", "pdf-000"),
        ("crawl-2/part 7.tar", "crawl-2/part%207"),
        ("a,b.tar", "a%2Cb"),
        ("from...to.tar", "from%2E%2E%2Eto"),
        ("100%.tar", "100%25"),
        ("Größe.tar", "Gr%C3%B6%C3%9Fe"),
        ("a.tar.gz", "a"),
        ("a.tgz", "a"),
        ("a.TAR", "a"),
        ("a.tar.gz.tar", "a.tar.gz"),
        ("../a.tar", "%2E%2E/a"),
        ("a//b.tar", "a/%2Fb"),
        ("/a.tar", "%2Fa"),
        ("v1.2/x.tar", "v1.2/x"),
        ("a.parquet", "a.parquet"),
        ("a.PARQUET", "a.PARQUET"),
        ("a.parquet.tar", "a.parquet"),
        ("a.tar.parquet", "a.tar.parquet"),
    ],
)
def test_known_keys(path: str, key: str) -> None:
    assert shard_key(path) == key
    assert path in shard_paths(key)


@pytest.mark.parametrize(
    ("path", "shard"),
    [
        ("a.tar", True),
        ("a/b.tar.gz", True),
        ("a.tgz", True),
        ("A.TAR", True),
        ("a.tar.GZ", False),  # neither in lower case nor in upper case
        ("a.tar.bz2", False),
        ("a.tar.tmp", False),
        (".a.tar", False),
        ("a/.~tmp~/b.tar", False),
        (".snapshot/1/a.parquet", False),
        ("a.d/..data/b.tar", True),
        ("./../b.tar", True),  # objects in a store may have such names
        ("a/.tar", False),
        ("tar", False),
        ("a.parquet", True),
        ("a.Parquet", True),
        ("a/.parquet", False),
        ("a.parquet.tmp", False),
    ],
)
def test_the_ending_makes_a_file_a_shard(path: str, shard: bool) -> None:
    assert is_shard(path) == shard


def test_only_the_formats_that_are_named_make_shards() -> None:
    assert [is_shard(path, ["tar"]) for path in ("a.tar", "a.parquet", "a.parquet.tar")] == [True, False, True]
    assert [is_shard(path, ["parquet"]) for path in ("a.tar", "a.parquet", "a.tar.parquet")] == [False, True, True]
    assert shard_paths("a.parquet", ["parquet"]) == ["a.parquet"]
    assert shard_paths("a.parquet", ["tar"]) == [f"a.parquet{ending}" for ending in TAR_ENDINGS]


def test_of_the_files_with_one_key_the_one_whose_key_keeps_its_ending_comes_first() -> None:
    assert shard_paths("a.parquet") == ["a.parquet", *(f"a.parquet{ending}" for ending in TAR_ENDINGS)]
    assert shard_paths("a") == [f"a{ending}" for ending in TAR_ENDINGS]
    for key in ("a", "a.parquet"):
        assert sorted(sorted(shard_paths(key)), key=preference) == shard_paths(key)


def test_a_long_path_is_cut_and_completed_by_a_hash() -> None:
    one, other = "x" * 300 + "1.tar", "x" * 300 + "2.tar"
    assert len(shard_key(one)) == len(shard_key(other)) == MAX_KEY_BYTES
    assert shard_key(one) != shard_key(other)
    assert is_cut(shard_key(one))
    with pytest.raises(ValueError, match="was cut"):
        shard_paths(shard_key(one))
    assert is_key(shard_key(f"{'x' * 160}/..data-{'y' * 99}/a.tar"))  # cut after some letters of the second folder


@given(paths)
def test_a_key_is_safe_and_its_path_can_be_computed_from_it(path: str) -> None:
    key = shard_key(path)
    assert 0 < len(key.encode()) <= MAX_KEY_BYTES
    assert re.fullmatch(r"[A-Za-z0-9_.%/~-]+", key)
    assert is_key(key)
    assert "..." not in key
    assert not {"", ".", ".."} & set(key.split("/"))
    if not is_cut(key):
        assert path in shard_paths(key)


@pytest.mark.parametrize("length", [0, 300], ids=["whole", "cut"])
def test_paths_that_differ_in_more_than_the_ending_have_different_keys(length: int) -> None:
    """All stems of up to three pieces: chance alone never draws two that one encoding could take for each other."""
    texts = {"".join(chosen) for count in (1, 2, 3) for chosen in itertools.product(PIECES, repeat=count)}
    found = ["x" * length + text for text in sorted(texts) if is_stem(text)]
    assert len(found) > 3000
    keys = Counter(shard_key(f"{stem}.tar") for stem in found)
    assert [key for key, count in keys.items() if count > 1] == []
    assert {is_cut(key) for key in keys} == {length > 0}


@given(stems, st.sampled_from(TAR_ENDINGS))
def test_the_ending_is_no_part_of_a_key_that_is_not_cut(stem: str, extension: str) -> None:
    key = shard_key(f"{stem}.tar")
    assert (shard_key(stem + extension) == key) == (extension == ".tar" or not is_cut(key))
