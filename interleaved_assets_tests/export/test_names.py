"""Ids of images: no two become one, in a tar, on a disk that ignores case or normalizes names, or for WebDataset."""

import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from interleaved_assets.export.names import file_stem, image_id, is_image_file, numbered_id, scope_of, set_name
from interleaved_assets.io.tar.layout import webdataset_key

# letters with two forms, capitals, what means something in paths and names, and what ids are escaped with
IDS = st.text(st.sampled_from("aAbé\u0301eÅ\u212bk\u212aß./\\ %=-_~0:") | st.characters(codec="utf-8"), max_size=60)
LONG = "x" * 5_000


def on_a_disk(name: str) -> str:
    """What a file system that ignores case and normalizes names makes of ``name``."""
    return unicodedata.normalize("NFKC", name).casefold()


@given(st.tuples(IDS, st.integers(0, 2**31 - 1)), st.tuples(IDS, st.integers(0, 2**31 - 1)))
@example(("a", 1), ("A", 1))
@example(("\u00e9", 1), ("e\u0301", 1))
@example(("K", 1), ("\u212a", 1))
@example(("a/b", 1), ("a%2fb", 1))
@example(("a.b", 1), ("a.c", 1))
@example(("a-0001", 2), ("a", 12))
@example((f"{LONG}a", 1), (f"{LONG}A", 1))
@example((LONG, 1), (image_id("", LONG, 1), 1))
@example(("", 0), ("-", 0))
def test_different_images_have_different_names_on_every_disk(left: tuple[str, int], right: tuple[str, int]) -> None:
    names = [image_id("0123456789ab", *key) for key in (left, right)]
    assert (on_a_disk(names[0]) == on_a_disk(names[1])) == (left == right)


@given(IDS, st.integers(0, 2**31 - 1))
@example(LONG, 0)
@example("../../etc/passwd", 0)
@example("__init__", 0)
@example("con", 0)
def test_a_name_is_short_plain_and_one_key(sample_id: str, position: int) -> None:
    name = image_id("0123456789ab", sample_id, position)
    assert len(name) <= 200
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-%=")
    assert webdataset_key(f"{name}.json") == webdataset_key(f"{name}.jpg") == name
    assert not name.endswith("__")  # webdataset skips __…__


def test_ids_say_where_images_come_from() -> None:
    assert image_id(scope_of("web/a"), "doc-1", 3) == "doc-1-0003-c7dff4606018"
    assert image_id(scope_of("web/b"), "doc-1", 3) != image_id(scope_of("web/a"), "doc-1", 3)
    assert numbered_id(set_name("x"), 7) == "2d711642b726b044-00000007"


def test_names_of_files() -> None:
    assert file_stem(set_name("x"), 12) == "images-2d711642b726b044-000012"
    assert is_image_file(f"{file_stem(set_name('x'), 12)}.tar")
    assert is_image_file(f"{file_stem(set_name('x'), 1_234_567)}.parquet")
    for other in ("images-2d711642b726b044-12.tar", "images-x-000000.tar", "a/images-2d711642b726b044-000000.tar", "x"):
        assert not is_image_file(other)
