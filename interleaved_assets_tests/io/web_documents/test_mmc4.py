import pytest

from interleaved_assets.io.web_documents.blocks import blocks_of
from interleaved_assets.io.web_documents.mmc4 import is_mmc4, mmc4_lists

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
