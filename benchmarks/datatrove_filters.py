"""The decisions of datatrove's filters, by its own code, beside bounds on the stored scores that say the same.

datatrove splits words with spaCy. Here it splits them on white space, as this package does.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from unittest import mock

import numpy as np
import pyarrow as pa

from interleaved_assets.scoring.protocol.settings import DocumentSettings
from interleaved_assets.scoring.protocol.texts import score_documents
from interleaved_assets.scoring.scores.text_lines import LAST_MARKS

SCORERS: Final = ("words", "characters", "quality", "repetition", "lines")


class Bound(NamedTuple):
    """A bound on a column: a text beyond it is dropped for the reason that datatrove gives."""

    reason: str
    column: str
    low: float = -np.inf
    high: float = np.inf


class Rules(NamedTuple):
    """A filter of datatrove, its options, and the bounds that stand for it, the first one that is tried first."""

    filter_class: str
    options: Mapping[str, Any]
    bounds: tuple[Bound, ...]


_OFF: Final = {
    **{"min_num_sentences": -1, "min_words_per_line": -1, "max_word_length": -1},
    **{f"filter_{rule}": False for rule in ("no_terminal_punct", "javascript", "policy")},
}
"""Rules of C4 on lines and sentences."""
_OTHER_RULES: Final = (
    *("min_avg_word_length", "max_avg_word_length", "max_symbol_word_ratio", "max_bullet_lines_ratio"),
    *("max_ellipsis_lines_ratio", "max_non_alpha_words_ratio", "min_stop_words"),
)
"""Options of Gopher's quality filter for its rules other than the number of words."""
RULES: Final = {
    "Gopher repetition": Rules(
        "GopherRepetitionFilter",
        {},
        (
            Bound("empty", "characters", low=1),
            Bound("dup_para_frac", "duplicate_paragraphs", high=0.3),
            Bound("dup_para_char_frac", "duplicate_paragraph_characters", high=0.2),
            Bound("dup_line_frac", "duplicate_lines", high=0.3),
            Bound("dup_line_char_frac", "duplicate_line_characters", high=0.2),
            *(Bound(f"top_{n}_gram", f"top_{n}_gram", high=most) for n, most in ((2, 0.2), (3, 0.18), (4, 0.16))),
            *(Bound(f"duplicated_{n}_n_grams", f"duplicate_{n}_gram", high=0.2 - n / 100) for n in range(5, 11)),
        ),
    ),
    # words of signs alone are no words in datatrove's number of words: no bound on them
    "Gopher quality": Rules(
        "GopherQualityFilter",
        {"min_doc_words": None, "max_doc_words": None},
        (
            Bound("error", "words", low=1),
            Bound("gopher_below_avg_threshold", "mean_word_length", low=3),
            Bound("gopher_above_avg_threshold", "mean_word_length", high=10),
            Bound("gopher_too_many_hashes", "hashes_per_word", high=0.1),
            Bound("gopher_too_many_ellipsis", "ellipses_per_word", high=0.1),
            Bound("gopher_too_many_bullets", "bullet_lines", high=0.9),
            Bound("gopher_too_many_end_ellipsis", "ellipsis_lines", high=0.3),
            Bound("gopher_below_alpha_threshold", "letter_words", low=0.8),
            Bound("gopher_enough_stop_words", "stop_words", low=2),
        ),
    ),
    "Gopher number of words": Rules(
        "GopherQualityFilter",
        {**dict.fromkeys(_OTHER_RULES), "min_doc_words": 50, "max_doc_words": 200},
        (Bound("gopher_short_doc", "words", low=50), Bound("gopher_long_doc", "words", high=200)),
    ),
    "FineWeb": Rules(
        "FineWebQualityFilter",
        {"stop_chars": tuple(LAST_MARKS)},
        (
            Bound("empty", "words", low=1),
            Bound("line_punct_ratio", "closed_lines", low=0.12),
            Bound("short_line_ratio", "short_lines", high=0.67),
            Bound("char_dup_ratio", "repeated_line_characters", high=0.01),
            Bound("list_ratio", "newlines_per_word", high=0.3),
        ),
    ),
    "C4, rules on whole documents": Rules(
        "C4QualityFilter",
        _OFF,
        (Bound("curly_bracket", "curly_braces", high=0), Bound("lorem_ipsum", "lorem_ipsum", high=0)),
    ),
}


def scores_of(texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the scores of documents of one text each, by column."""
    rows = pa.table(
        {
            "sample_id": [str(number) for number in range(len(texts))],
            "position": pa.array([0] * len(texts), pa.int32()),
            "modality": ["text"] * len(texts),
            "text_content": pa.array(texts, pa.large_string()),
        }
    )
    found = score_documents(rows, DocumentSettings(scorers=SCORERS))
    found = found.filter(pa.array(np.equal(found["position"].to_numpy(), -1)))
    return {name: found[name].to_numpy() for name in found.column_names if name not in ("sample_id", "score_error")}


def ours(scores: Mapping[str, np.ndarray], bounds: Sequence[Bound]) -> list[str]:
    """Return the reason for which the bounds drop each text, that of the first bound; empty if they keep it."""
    reasons = np.full(len(scores["words"]), "", dtype=object)
    for bound in reversed(bounds):
        values = scores[bound.column]
        reasons[(values < bound.low) | (values > bound.high)] = bound.reason
    return [str(reason) for reason in reasons]


def theirs(texts: Sequence[str], filter_class: str, options: Mapping[str, Any]) -> list[str]:
    """Return the reason for which datatrove's filter drops each text; empty if it keeps it."""
    from datatrove.data import Document
    from datatrove.pipeline import filters

    said = []
    with _split_on_white_space(), np.errstate(all="ignore"):
        judge = getattr(filters, filter_class)(**options)
        for number, text in enumerate(texts):
            try:
                found = judge.filter(Document(text=text, id=str(number)))
            except ZeroDivisionError:  # no word, or no line
                found = (False, "error")
            said.append("" if found is True else found[1])
    return said


@contextmanager
def _split_on_white_space() -> Iterator[None]:
    from datatrove.pipeline.filters import (
        c4_filters,
        fineweb_quality_filter,
        gopher_quality_filter,
        gopher_repetition_filter,
    )

    words = [
        mock.patch.object(module, "split_into_words", lambda text, _language: text.split())
        for module in (fineweb_quality_filter, gopher_quality_filter, gopher_repetition_filter)
    ]
    sentences = mock.patch.object(c4_filters, "split_into_sentences", lambda text, _language: [text])
    with words[0], words[1], words[2], sentences:
        yield
