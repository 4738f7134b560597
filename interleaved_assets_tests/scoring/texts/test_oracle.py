"""The decisions of datatrove's filters, by its own code, against bounds on the stored scores.

datatrove splits words with spaCy. Here it splits them on white space, as this package does.
"""

from collections import Counter
from functools import cache
from importlib.util import find_spec

import numpy as np
import pyarrow as pa
import pytest

from interleaved_assets.scoring.protocol.settings import DocumentSettings
from interleaved_assets.scoring.protocol.texts import score_documents
from interleaved_assets.scoring.scores.text_lines import LAST_MARKS
from interleaved_assets_tests.scoring.texts.drawn import drawn_texts

pytestmark = pytest.mark.skipif(find_spec("datatrove") is None, reason="datatrove, of the extra dev, is not installed")
SCORERS = ("words", "characters", "quality", "repetition", "lines")


@cache
def texts() -> list[str]:
    return drawn_texts(2400)


@pytest.fixture(scope="module")
def scores() -> dict[str, np.ndarray]:
    """The scores of documents of one text each."""
    count = len(texts())
    rows = pa.table(
        {
            "sample_id": [str(number) for number in range(count)],
            "position": pa.array([0] * count, pa.int32()),
            "modality": ["text"] * count,
            "text_content": texts(),
        }
    )
    found = score_documents(rows, DocumentSettings(scorers=SCORERS))
    found = found.filter(pa.array(np.equal(found["position"].to_numpy(), -1)))
    assert found["sample_id"].to_pylist() == rows["sample_id"].to_pylist()
    return {name: found[name].to_numpy() for name in found.column_names if name not in ("sample_id", "score_error")}


def verdicts(filter_class: str, monkeypatch: pytest.MonkeyPatch, **options: object) -> list[str]:
    """The reason for which datatrove's filter drops each text; empty if it keeps it."""
    from datatrove.data import Document
    from datatrove.pipeline import filters
    from datatrove.pipeline.filters import (
        c4_filters,
        fineweb_quality_filter,
        gopher_quality_filter,
        gopher_repetition_filter,
    )

    for module in (fineweb_quality_filter, gopher_quality_filter, gopher_repetition_filter):
        monkeypatch.setattr(module, "split_into_words", lambda text, _language: text.split())
    monkeypatch.setattr(c4_filters, "split_into_sentences", lambda text, _language: [text])
    judge = getattr(filters, filter_class)(**options)
    said = []
    for number, text in enumerate(texts()):
        with np.errstate(all="ignore"):
            try:
                found = judge.filter(Document(text=text, id=str(number)))
            except ZeroDivisionError:  # no word, or no line
                found = (False, "error")
        said.append("" if found is True else found[1])
    return said


def test_gopher_repetition(scores: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    said = verdicts("GopherRepetitionFilter", monkeypatch)
    bounds = {
        "duplicate_paragraphs": ("dup_para_frac", 0.3),
        "duplicate_paragraph_characters": ("dup_para_char_frac", 0.2),
        "duplicate_lines": ("dup_line_frac", 0.3),
        "duplicate_line_characters": ("dup_line_char_frac", 0.2),
        **{f"top_{n}_gram": (f"top_{n}_gram", limit) for n, limit in ((2, 0.2), (3, 0.18), (4, 0.16))},
        **{f"duplicate_{n}_gram": (f"duplicated_{n}_n_grams", 0.2 - n / 100) for n in range(5, 11)},
    }
    ours = np.full(len(texts()), "", dtype=object)
    for column, (reason, limit) in reversed(bounds.items()):
        ours[scores[column] > limit] = reason
    ours[scores["characters"] == 0] = "empty"
    assert [(text, one, other) for text, one, other in zip(texts(), said, ours, strict=True) if one != other] == []
    assert min(Counter(said)[reason] for reason in ("", "dup_line_frac", "top_2_gram", "duplicated_5_n_grams")) > 20


def test_gopher_quality(scores: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    # words of signs alone count as words here, and not in datatrove's number of words: no bound on them
    said = verdicts("GopherQualityFilter", monkeypatch, min_doc_words=None, max_doc_words=None)
    ours = np.full(len(texts()), "", dtype=object)
    ours[scores["stop_words"] < 2] = "gopher_enough_stop_words"
    ours[scores["letter_words"] < 0.8] = "gopher_below_alpha_threshold"
    ours[scores["ellipsis_lines"] > 0.3] = "gopher_too_many_end_ellipsis"
    ours[scores["bullet_lines"] > 0.9] = "gopher_too_many_bullets"
    ours[scores["ellipses_per_word"] > 0.1] = "gopher_too_many_ellipsis"
    ours[scores["hashes_per_word"] > 0.1] = "gopher_too_many_hashes"
    ours[scores["mean_word_length"] > 10] = "gopher_above_avg_threshold"
    ours[scores["mean_word_length"] < 3] = "gopher_below_avg_threshold"
    ours[scores["words"] == 0] = "error"
    assert [bool(reason) for reason in said] == [bool(reason) for reason in ours]
    # the mean length of no words is not a number there, and 0 here: another rule drops such a text
    wrong = [text for text, one, other in zip(texts(), said, ours, strict=True) if one != other]
    # §, → and … alone are words of letters there, since its list of punctuation lacks them
    assert [text for text in wrong if any(map(str.isalnum, text)) and "§" not in text] == []
    assert len(wrong) <= 100
    assert min(Counter(said)[reason] for reason in ("", "gopher_too_many_bullets", "gopher_too_many_ellipsis")) > 20


def test_gopher_numbers_of_words(scores: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    said = verdicts("GopherQualityFilter", monkeypatch, max_doc_words=200)
    ours = (scores["words"] < 50) | (scores["words"] > 200)
    wrong = {
        text
        for text, reason, dropped in zip(texts(), said, ours, strict=True)
        if (reason in ("gopher_short_doc", "gopher_long_doc")) != dropped
    }
    # words without a letter or digit count here, as they do for str.split, and not in datatrove
    for text in wrong:
        signs = [word for word in text.split() if not any(map(str.isalnum, word))]
        assert signs, text
    assert len(wrong) < 40


def test_fineweb(scores: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    said = verdicts("FineWebQualityFilter", monkeypatch, stop_chars=tuple(LAST_MARKS))
    ours = np.full(len(texts()), "", dtype=object)
    ours[scores["newlines_per_word"] > 0.3] = "list_ratio"
    ours[scores["repeated_line_characters"] > 0.01] = "char_dup_ratio"
    ours[scores["short_lines"] > 0.67] = "short_line_ratio"
    ours[scores["closed_lines"] < 0.12] = "line_punct_ratio"
    ours[scores["words"] == 0] = "empty"
    assert [(text, one, other) for text, one, other in zip(texts(), said, ours, strict=True) if one != other] == []
    assert min(Counter(said)[reason] for reason in ("", "list_ratio", "char_dup_ratio", "short_line_ratio")) > 20


def test_c4(scores: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rules on whole documents; the others drop lines, and need sentences."""
    off = {"min_num_sentences": -1, "min_words_per_line": -1, "max_word_length": -1}
    rules = ("no_terminal_punct", "javascript", "policy")
    said = verdicts("C4QualityFilter", monkeypatch, **off, **{f"filter_{rule}": False for rule in rules})
    ours = (scores["curly_braces"] > 0) | (scores["lorem_ipsum"] > 0)
    assert [bool(reason) for reason in said] == ours.tolist()
    assert min(Counter(said)[reason] for reason in ("", "curly_bracket", "lorem_ipsum")) > 10
