import pytest

from interleaved_assets.io.rows.blocks import Block
from interleaved_assets.io.web_documents.blocks import UrlLists, blocks_of, is_mmc4, mmc4_lists, sample_id_of


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


MMC4 = {
    "text_list": ["first", "second", "third"],
    "image_info": [
        {"raw_url": "u2", "matched_text_index": 2, "matched_sim": 0.3},
        {"raw_url": "u0", "matched_text_index": 0, "matched_sim": 0.25},
        {"raw_url": "u0b", "matched_text_index": 0},
        {"raw_url": "u9", "matched_text_index": 9},
        {"image_name": "no url"},
    ],
}


def test_images_of_mmc4_stand_before_their_sentence_and_others_at_the_end() -> None:
    assert is_mmc4(MMC4)
    lists = mmc4_lists(MMC4)
    assert lists.texts == [None, None, "first", "second", None, "third", None, None]
    assert lists.images == ["u0", "u0b", None, None, "u2", None, "u9", {}]
    assert lists.similarities == [0.25, None, 0.3, None, None]
    blocks = blocks_of(lists, {}, has_store=True)
    images = [block for block in blocks if block.kind == "image"]
    assert [image.fields.get("matched_sim") for image in images] == [0.25, None, 0.3, None, None]
    assert (blocks[-1].error or "").startswith("invalid_token")


def test_a_whole_number_is_a_similarity_too() -> None:
    infos = [{"raw_url": "u", "matched_text_index": 0, "matched_sim": value} for value in (1, 0, True, "1", 10**400)]
    assert mmc4_lists({"text_list": ["a"], "image_info": infos}).similarities == [1.0, 0.0, None, None, None]


@pytest.mark.parametrize("record", [{}, {"text_list": ["a"]}, {"text_list": "a", "image_info": []}])
def test_other_records_are_not_mmc4_s(record: dict[str, object]) -> None:
    assert not is_mmc4(record)


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
