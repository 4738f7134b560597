"""Words of a list in the URLs of documents."""

from pathlib import Path

import pyarrow as pa
import pytest

from interleaved_assets.model.errors import OptionError, SettingsError
from interleaved_assets.scoring.protocol.settings import DocumentSettings
from interleaved_assets.scoring.protocol.texts import score_documents


@pytest.fixture
def words(tmp_path: Path) -> str:
    file = tmp_path / "words.txt"
    file.write_text("shop\nXXX\n\ncasino-\nstraße\nshop\n")
    return str(file)


def rows(**fields: pa.Array) -> pa.Table:
    """Documents with two rows each: one with the fields, and a text that has words of the list."""
    count = len(next(iter(fields.values())))
    both = pa.array([number // 2 for number in range(2 * count)])
    is_text = pa.array([number % 2 == 1 for number in range(2 * count)])
    columns = {
        "sample_id": [f"{number // 2:04d}" for number in range(2 * count)],
        "position": pa.array([number % 2 - 1 for number in range(2 * count)], pa.int32()),
        "modality": ["text" if number % 2 else "metadata" for number in range(2 * count)],
        "text_content": pa.array([f"shop xxx {number}" if number % 2 else None for number in range(2 * count)]),
    }
    for name, values in fields.items():
        columns[name] = pa.compute.if_else(is_text, pa.scalar(None, values.type), values.take(both))
    return pa.table(columns)


def found(table: pa.Table, **options: str) -> list[int]:
    scores = score_documents(table, DocumentSettings(scorers=("url",), **options))
    assert scores["score_error"].null_count == len(scores)
    assert scores["url_words"].to_pylist()[1::2] == [None] * (len(scores) // 2)  # a text has no URL
    return scores["url_words"].to_pylist()[::2]


def test_words_are_counted_once_in_any_case_and_within_words(words: str) -> None:
    urls = [
        "https://www.Workshops.example/shop/SHOP",
        "http://xxx.example/casino-royal?shop=1",
        "http://xx.example/xcasino",
        "https://ja.example/STRASSE/Straße/河流",
        "",
        None,
    ]
    assert found(rows(url=pa.array(urls)), url_words=words) == [1, 3, 0, 1, 0, 0]


def test_a_word_is_not_found_across_two_urls(words: str) -> None:
    assert found(rows(url=pa.array(["http://a.example/sh", "op/xx", "x"])), url_words=words) == [0, 0, 0]


def test_many_documents_are_as_counted_one_by_one(words: str) -> None:
    urls = [f"http://{'shop' * (number % 3)}.example/{'x' * (number % 5)}" for number in range(3000)]
    expected = [("shop" in url) + ("xxx" in url) for url in urls]
    assert found(rows(url=pa.array(urls)), url_words=words) == expected


def test_the_field_can_be_within_a_struct_or_of_another_type(words: str) -> None:
    meta = pa.array([{"link": "http://shop.example"}, None, {"link": None}])
    assert found(rows(meta=meta), url_words=words, url_field="meta.link") == [1, 0, 0]
    assert found(rows(url=pa.array([17])), url_words=words) == [0]


def test_without_a_list_no_word_is_found_and_no_field_is_needed(words: str) -> None:
    assert found(rows(url=pa.array(["http://shop.example"]))) == [0]
    assert found(rows(other=pa.array(["http://shop.example"]))) == [0]


def test_a_missing_field_or_list_is_named(words: str) -> None:
    with pytest.raises(OptionError, match=r"^documents\.url_field: no document has the field 'url'$"):
        found(rows(other=pa.array(["http://shop.example"])), url_words=words)
    with pytest.raises(OptionError, match=r"the field 'meta\.url'; did you mean meta\.link$"):
        found(rows(meta=pa.array([{"link": "x"}])), url_words=words, url_field="meta.url")
    with pytest.raises(OptionError, match=r"^the field url of the documents is struct.*, and no string$"):
        found(rows(url=pa.array([{"link": "secret"}])), url_words=words)
    with pytest.raises(SettingsError, match=r"^documents\.url_words: .* cannot be read as a list of words"):
        found(rows(url=pa.array(["x"])), url_words=words + "-gone")
