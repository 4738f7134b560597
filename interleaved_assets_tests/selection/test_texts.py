"""Filters on scores of documents and texts, and on fields of the documents."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from interleaved_assets.model.errors import OptionError, ScoreError, SettingsError
from interleaved_assets.model.ledger import check_balance
from interleaved_assets.scoring.protocol.settings import DocumentSettings
from interleaved_assets.scoring.protocol.texts import score_documents
from interleaved_assets.selection.batch import selection_rows
from interleaved_assets.selection.judge import Selection, select
from interleaved_assets.selection.other_bounds import judged_samples, judged_values, what_if
from interleaved_assets.selection.settings import SelectionSettings, selection_version
from interleaved_assets.selection.texts import with_fields

LICENCE = pa.struct([("name", pa.string()), ("copies", pa.int64())])


def table(documents: dict[str, list[str | None]], licences: dict[str, Any] | None = None) -> pa.Table:
    """Rows of documents: a metadata row, a row for each text, and an image for None."""
    rows: list[dict[str, Any]] = []
    for sample_id, items in documents.items():
        licence = (licences or {}).get(sample_id)
        rows.append({"sample_id": sample_id, "position": -1, "modality": "metadata", "licence": licence})
        rows += [
            {"sample_id": sample_id, "position": place, "modality": "image" if text is None else "text"}
            | {"text_content": text}
            for place, text in enumerate(items)
        ]
    schema = [("sample_id", pa.string()), ("position", pa.int32()), ("modality", pa.string())]
    return pa.Table.from_pylist(rows, pa.schema([*schema, ("text_content", pa.string()), ("licence", LICENCE)]))


NO_SCORES = pa.table({"sample_id": pa.array([], pa.string()), "position": pa.array([], pa.int32())})
ROWS = table(
    {"long": ["one two three", None, "four five six seven"], "short": ["one", None], "bare": [None], "empty": []},
    {"long": {"name": "cc-by", "copies": 3}, "short": {"name": "unknown", "copies": 1}, "bare": {"copies": 9}},
)


def documents(rows: pa.Table = ROWS, fields: tuple[str, ...] = ()) -> pa.Table:
    return with_fields(score_documents(rows, DocumentSettings()), rows, fields)


def decided(rows: pa.Table = ROWS, **settings: Any) -> tuple[Selection, list[tuple]]:
    """The selection with no other filters, and its ledger."""
    given = SelectionSettings.model_validate({"order": (), **settings})
    found = select(selection_rows(rows), NO_SCORES, given, documents=documents(rows, given.fields()))
    check_balance("rows", rows.num_rows, found.keep.true_count, found.ledger)
    names = ("sample_id", "position", "reason", "measured", "threshold", "detail")
    return found, [tuple(row[name] for name in names) for row in found.ledger.to_pylist()]


@pytest.mark.parametrize("given", [None, documents()])
def test_document_scores_that_lack_the_field_are_refused(given: pa.Table | None) -> None:
    settings = SelectionSettings.model_validate(
        {"order": (), "own": {"licence": {"field": "licence.name", "not_in": ["x"]}}}
    )
    with pytest.raises(OptionError, match=r"^filter 'licence' needs document scores with the column "):
        select(selection_rows(ROWS), NO_SCORES, settings, documents=given)


def test_a_document_outside_the_bounds_goes_with_all_its_rows() -> None:
    found, ledger = decided(document={"words": {"min": 2, "max": 6}})
    assert found.filters == ("document_words",)
    assert ledger == [
        *(("long", position, "document_words_above", 7.0, 6.0, None) for position in (-1, 0, 1, 2)),
        *(("short", position, "document_words_below", 1.0, 2.0, None) for position in (-1, 0, 1)),
        *(("bare", position, "document_words_below", 0.0, 2.0, None) for position in (-1, 0)),
    ]  # a document that never had content stays, as it does for filters of samples


def test_a_text_outside_the_bounds_goes_alone_or_with_its_sample() -> None:
    _, ledger = decided(text={"words": {"min": 4}})
    assert ledger == [("long", 0, "text_words_below", 3.0, 4.0, None), ("short", 0, "text_words_below", 1.0, 4.0, None)]
    _, ledger = decided(text={"words": {"min": 2}}, on_fail={"text_words": "sample"})
    why = "dropped with its sample, for the text at position 0: text_words_below"
    assert ledger == [
        ("short", -1, "sample_dropped", None, None, why),
        ("short", 0, "text_words_below", 1.0, 2.0, None),
        ("short", 1, "sample_dropped", None, None, why),
    ]
    _, ledger = decided(table({"a": ["one"]}), text={"words": {"min": 2}})
    assert ledger[0][2:] == (
        "sample_dropped",
        None,
        None,
        "no content is left after the text at position 0: text_words_below",
    )


def test_a_text_that_is_dropped_does_not_count_for_the_ratio() -> None:
    settings = {"order": ("ratio",), "text": {"words": {"min": 4}}, "max_ratio": 0.25}
    _, ledger = decided(**settings)
    assert [line[2] for line in ledger if line[0] == "long"] == ["text_words_below"]  # 1 image / 4 words
    _, ledger = decided(**{**settings, "max_ratio": 0.24})
    assert [line[2] for line in ledger if line[0] == "long"] == [
        "ratio_above",
        "text_words_below",
        *["ratio_above"] * 2,
    ]


def test_fields_of_documents_by_path() -> None:
    own = {"licence": {"field": "licence.name", "not_in": ["unknown"]}}
    found, ledger = decided(own=own, on_score_error="warn")
    assert found.filters == ("licence",)
    assert ledger == [
        ("short", position, "licence_in", None, None, "field licence.name is unknown") for position in (-1, 0, 1)
    ]
    assert found.unscored == {"unscored": 1}  # the document without the field
    _, ledger = decided(own={"licence": {"field": "licence.name", "in": ["cc-by"]}}, on_score_error="drop_row")
    assert {line[0]: line[2] for line in ledger if line[1] == -1} == {
        "short": "licence_not_in",
        "bare": "unscored",
    }
    _, ledger = decided(own={"copies": {"field": "licence.copies", "max": 3}})
    assert ledger == [("bare", position, "copies_above", 9.0, 3.0, None) for position in (-1, 0)]
    with pytest.raises(
        ScoreError,
        match=r"'bare', document at .* field licence\.name not stored .*\. Fix the document,",
    ):
        decided(own=own)
    with pytest.raises(OptionError, match=r"'licence': the field licence\.name is string, and not all .* are numbers"):
        decided(own={"licence": {"field": "licence.name", "min": 1}})


def test_counts_of_what_is_left() -> None:
    settings = {"order": ("images", "words")}
    assert {line[0]: line[2:5] for line in decided(**settings, min_images=1, max_words=6)[1]} == {
        "long": ("words_above", 7.0, 6.0)
    }
    rows = table({"a": [None, None], "b": ["x", None], "c": ["x"]})
    assert {line[0]: line[2:5] for line in decided(rows, **settings, min_images=1, max_images=1)[1]} == {
        "a": ("images_above", 2.0, 1.0),
        "c": ("images_below", 0.0, 1.0),
    }


def test_filters_on_texts_come_first_unless_the_order_names_them() -> None:
    given = {"document": {"words": {"min": 1}}, "text": {"words": {"min": 2}}}
    assert SelectionSettings(order=("ratio",), **given).full_order() == ("document_words", "text_words", "ratio")
    order = ("ratio", "document_words")
    assert SelectionSettings(order=order, **given).full_order() == ("text_words", "ratio", "document_words")


def test_a_score_that_only_documents_have_is_none_of_texts() -> None:
    for column in ("images", "top_2_gram", "duplicate_lines", "short_lines", "cut_lines", "url_words"):
        bounds = {column: {"min": 1}}
        said = rf"text\.{column}: it is a score of documents, .* document\.{column}"
        with pytest.raises(ValidationError, match=said):
            SelectionSettings(text=bounds)
        SelectionSettings(document=bounds)


def test_long_numbers_and_structs_in_fields() -> None:
    ids = {"long": {"copies": 10**17}, "short": {"copies": 10**17 + 10**6}, "bare": {"copies": 1}}
    rows = table({"long": ["a"], "short": ["b"], "bare": ["c"]}, ids)
    _, ledger = decided(rows, own={"copies": {"field": "licence.copies", "min": 10**17 + 10**5}})
    assert {line[0] for line in ledger} == {"long", "bare"}
    with pytest.raises(OptionError, match=r"the field licence is struct<.*> *, and not all of its values are strings"):
        decided(rows, own={"licence": {"field": "licence", "in": ["a"]}})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"document": {"word": {"min": 1}}}, "document: no score of texts named word; did you mean words"),
        ({"text": {"qqq": {"min": 1}}}, "text: no score of texts named qqq; there are words, characters"),
        ({"document": {"words": {"in": ["a"]}}}, r"document\.words: it is a number, which min and max compare"),
        ({"document": {"words": {"min": 3, "max": 2}}}, r"document\.words: the minimum 3 is above the maximum 2"),
        (
            {"document": {"words": {"min": 1}}, "own": {"document_words": {"field": "x", "min": 1}}},
            "own: document_words is the filter of a bound in document or text: take another name",
        ),
        ({"own": {"x": {"in": ["a"]}}}, "in and not_in need field"),
        ({"own": {"x": {"field": "y", "in": ["a"], "min": 1}}}, "give one of the two"),
        ({"own": {"aspect2": {"field": "y"}}, "on_fail": {"aspect2": "image"}}, "aspect2 is a filter of samples"),
        ({"document": {"words": {"min": 1}}, "on_fail": {"document_words": "image"}}, "always drops whole samples"),
        ({"order": ("document_words",)}, "order: no filter named document_words"),
    ],
)
def test_settings_that_make_no_sense_are_named(given: dict, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        SelectionSettings.model_validate(given)


def test_without_document_scores_the_filter_names_them() -> None:
    settings = SelectionSettings(order=(), document={"words": {"min": 1}})
    with pytest.raises(OptionError, match="'document_words' needs the score words, which the scorer 'words' measures"):
        select(selection_rows(ROWS), NO_SCORES, settings)


def test_no_bound_on_texts_leaves_the_version_as_it_was() -> None:
    assert '"document"' not in selection_version(SelectionSettings())
    assert '"document": {"words": {"min": 1.0}}' in selection_version(SelectionSettings(document={"words": {"min": 1}}))


def test_values_that_a_filter_would_compare() -> None:
    settings = SelectionSettings(order=("ratio",), document={"words": {"min": 1}}, max_ratio=0.5)
    rows, scores = selection_rows(ROWS), documents()
    assert judged_values(rows, NO_SCORES, settings, "document_words", documents=scores).tolist() == [7, 1, 0]
    assert judged_values(rows, NO_SCORES, settings, "text_words", documents=scores).tolist() == [3, 4]
    assert judged_samples(rows, NO_SCORES, settings, "ratio", documents=scores)["sample_id"].to_pylist() == [
        "long",
        "short",
    ]
    with pytest.raises(OptionError, match="filter 'text_words' measures texts, not samples"):
        judged_samples(rows, NO_SCORES, settings, "text_words", documents=scores)


TEXTS = st.lists(st.one_of(st.none(), st.integers(0, 5).map(lambda words: "word " * words)), max_size=4)
NUMBER = st.integers(0, 9)


@given(
    items=st.lists(TEXTS, min_size=1, max_size=5),
    document=st.tuples(NUMBER, NUMBER).map(sorted),
    text=st.tuples(NUMBER, NUMBER).map(sorted),
    whole=st.booleans(),
    most=NUMBER,
)
def test_what_if_says_what_a_run_keeps(
    items: list[list[str | None]], document: list[int], text: list[int], whole: bool, most: int
) -> None:
    rows = table({str(number): texts for number, texts in enumerate(items)})
    scores = documents(rows)
    overrides = {
        "document.words.min": document[0],
        "document.words.max": document[1],
        "text.words.min": text[0],
        "text.words.max": text[1],
        "max_images": most,
        **({"on_fail": {"text_words": "sample"}} if whole else {}),
    }
    before = SelectionSettings(order=("images",))
    outcome = what_if(selection_rows(rows), NO_SCORES, before, overrides, documents=scores)
    bounds = {name: {"min": low, "max": high} for name, (low, high) in {"d": document, "t": text}.items()}
    after = SelectionSettings(
        order=("images",),
        document={"words": bounds["d"]},
        text={"words": bounds["t"]},
        max_images=most,
        on_fail={"text_words": "sample"} if whole else {},
    )
    found = select(selection_rows(rows), NO_SCORES, after, documents=scores)
    assert outcome.rows_kept == found.keep.true_count
    assert sum(outcome.dropped.values()) == found.ledger.num_rows == rows.num_rows - found.keep.true_count
    # the same decision, written down once more
    kept = rows.filter(found.keep)
    for number, texts in enumerate(items):
        words = [len(one.split()) for one in texts if one is not None]
        left = [count for count in words if text[0] <= count <= text[1]]
        images = len(texts) - len(words)
        stays = document[0] <= sum(words) <= document[1] and (len(left) == len(words) or not whole)
        stays = (stays and images <= most and bool(left or images)) or not texts
        count = int(np.sum(np.asarray(kept["sample_id"].to_pylist()) == str(number)))
        assert count == (1 + len(left) + images if stays else 0)


def test_an_unknown_override_is_named() -> None:
    with pytest.raises(SettingsError, match=r"document\.words\.least: no such setting; bounds of document\.words are"):
        what_if(selection_rows(ROWS), NO_SCORES, SelectionSettings(), {"document.words.least": 1})
    named = r"document\.language: no such setting; bounds of document\.language are document\.language\.min, .*\.in and"
    with pytest.raises(SettingsError, match=named):
        what_if(selection_rows(ROWS), NO_SCORES, SelectionSettings(), {"document.language": "en"})
    with pytest.raises(SettingsError, match=r'document\.language\.in: it is a list, such as \["en"\]'):
        what_if(selection_rows(ROWS), NO_SCORES, SelectionSettings(), {"document.language.in": "en"})
    with pytest.raises(SettingsError, match=r'order: it is a list, such as \["sharpness"\]'):
        what_if(selection_rows(ROWS), NO_SCORES, SelectionSettings(), {"order": "sharpness"})
