import pytest

from interleaved_assets.io.rows.blocks import Block
from interleaved_assets.io.web_documents.blocks import UrlLists, blocks_of, sample_id_of


def test_lists_become_blocks_in_their_order() -> None:
    lists = UrlLists(["a", None, "b"], [None, "https://x/1.jpg", None])
    assert blocks_of(lists, {"https://x/1.jpg": "locator"}, has_store=True) == [
        Block("text", "a"),
        Block("image", url="https://x/1.jpg", source_ref="locator"),
        Block("text", "b"),
    ]


def test_an_image_that_is_not_in_the_store_is_told() -> None:
    (without, _) = blocks_of(UrlLists([], ["u", "v"]), {}, has_store=False)
    assert without.error == "image_not_in_store: u, since reading.urls.image_store is not set"
    (with_store,) = blocks_of(UrlLists([], ["u"]), {}, has_store=True)
    assert (with_store.error, with_store.url) == ("image_not_in_store: u", "u")


def test_lists_of_different_lengths_and_entries_of_other_types() -> None:
    blocks = blocks_of(UrlLists(["a", 5], [None, None, {"src": "u"}]), {}, has_store=True)
    assert [(block.kind, block.text, block.error) for block in blocks] == [
        ("text", "a", None),
        ("text", "5", "invalid_text: entry 1 is a int and not a string"),
        ("image", None, "invalid_token: an entry of images is a dict and not a URL"),
    ]


@pytest.mark.parametrize(
    ("fields", "sample_id"),
    [
        ({"url": "https://x/"}, "https://x/"),
        ({"general_metadata": '{"url": "https://y/"}'}, "https://y/"),
        ({"general_metadata": {"url": "https://z/"}}, "https://z/"),
        ({"general_metadata": "no json"}, None),
        ({"general_metadata": "[1]"}, None),
        ({"url": ""}, None),
        ({"url": "\ud800"}, None),
        ({}, None),
    ],
)
def test_the_url_is_the_id(fields: dict[str, object], sample_id: str | None) -> None:
    assert sample_id_of(fields) == sample_id
