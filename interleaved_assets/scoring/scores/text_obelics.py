"""The rules of OBELICS on texts and documents (arXiv 2306.16527).

Its words are in lower case and without special characters at their ends.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pydantic import Field

from interleaved_assets.scoring.protocol.scorer import MeasureTexts, Range, Scorer, register_scorer
from interleaved_assets.scoring.texts.batch import Numbers, TextBatch, share
from interleaved_assets.scoring.texts.characters import MARK, WORD_PART, is_of
from interleaved_assets.scoring.texts.hashes import SpanHashes, mixed
from interleaved_assets.scoring.texts.lines import count_places
from interleaved_assets.scoring.texts.lists import STOP_WORDS, words_in
from interleaved_assets.scoring.texts.repeats import Repeats, find_repeats, sum_of_largest
from interleaved_assets.scoring.texts.words import find_hashes, hashes_of, plain_words_of, span_hashes, spans_of

_WORDS: Final = 5
_CHARACTERS: Final = 10
_FEWEST_TOKENS: Final = 12
"""Words and marks that a text has to have for its punctuation to be judged."""
_COLUMNS: Final = {
    "plain_words": "Words, without those that are all special characters, from 0 (OBELICS).",
    "punctuation": "Marks , ; : ? ! . / (these marks + runs of letters, digits, _ and '), 0 to 1; 1 for a text row "
    f"with fewer than {_FEWEST_TOKENS} of both, which OBELICS does not judge (OBELICS).",
    "stop_word_share": "Share of the words that are in the list of documents.stop_words, 0 to 1 (OBELICS).",
    "flagged_words": "Share of the words that are in the list of documents.flagged_words, 0 to 1 (OBELICS).",
    "repeated_5_words": "Share of the runs of 5 words that occur more than once, 0 to 1 (OBELICS).",
    "repeated_10_characters": "Share of the runs of 10 characters that are among the most frequent repeated ones, 0 to "
    "1; as many kinds count as the square root of all kinds (OBELICS).",
}


def _punctuation(batch: TextBatch) -> np.ndarray:
    is_part = is_of(batch.classes, WORD_PART)
    marks = batch.with_totals(batch.count_class(MARK))
    tokens = marks + batch.with_totals(count_places(batch, spans_of(is_part)[0]))
    is_text = batch.rows_from(np.zeros(batch.documents, dtype=bool), np.ones(batch.texts, dtype=bool))
    return np.where(is_text & (tokens < _FEWEST_TOKENS) & (tokens > 0), 1.0, share(marks, tokens))


def _listed(batch: TextBatch, words: frozenset[str]) -> np.ndarray:
    """Return the share of the words of each row that are in the list."""
    plain = plain_words_of(batch)
    places, _ = find_hashes(plain.lower_hashes, hashes_of(words))
    listed = np.bincount(plain.text[places], minlength=batch.texts)
    return share(batch.with_totals(listed), batch.with_totals(plain.per_text))


def _repeated_words(batch: TextBatch) -> np.ndarray:
    words = plain_words_of(batch)
    runs = SpanHashes(mixed(words.lower_hashes)).of_length(_WORDS)
    places = np.arange(len(runs))
    found: list[np.ndarray] = []
    for owner, total in ((words.document, words.per_document), (words.text, words.per_text)):
        # a run that a text repeats is repeated in its document too
        places = places[owner[places] == owner[places + _WORDS - 1]]
        counts = np.bincount(owner[places], minlength=len(total))
        places = find_repeats(runs[places], counts, places).places
        repeated = np.bincount(owner[places], minlength=len(total))
        found.append(repeated / np.maximum(total - _WORDS + 1, 1))
    return batch.rows_from(*found)


def _repeated_characters(batch: TextBatch) -> np.ndarray:
    runs = span_hashes(batch).of_length(_CHARACTERS)
    of_documents = np.maximum(batch.document_ends - batch.document_starts - _CHARACTERS + 1, 0)
    repeats = find_repeats(runs, _counts_within(batch.document_starts, of_documents, np.arange(len(runs))))
    share_in_documents = _share_of_largest(repeats, of_documents)
    # a run that a text repeats is repeated in its document too
    of_texts = np.maximum(batch.lengths - _CHARACTERS + 1, 0)
    counts = _counts_within(batch.starts, of_texts, repeats.places)
    repeats = find_repeats(repeats.group.view(np.uint64), counts)
    return batch.rows_from(share_in_documents, _share_of_largest(repeats, of_texts))


def _counts_within(starts: Numbers, lengths: Numbers, places: Numbers) -> Numbers:
    """Return how many ascending ``places`` are in the first span, between it and the second, in that, and so on."""
    edges = np.column_stack([starts, starts + lengths]).ravel()
    np.maximum.accumulate(edges, out=edges)  # an empty span may begin anywhere
    return np.diff(np.searchsorted(places, edges), append=len(places))


def _share_of_largest(repeats: Repeats, total: Numbers) -> np.ndarray:
    """Return the share of the runs that are in the largest groups: as many as the square root of all kinds.

    The owners are those of :func:`_counts_within`: every second one is a span.
    """
    within = repeats.owners & 1 == 0
    owners, sizes = repeats.owners[within] >> 1, repeats.sizes[within]
    count = np.bincount(owners, minlength=len(total))
    kinds = total - np.bincount(owners, weights=sizes, minlength=len(total)) + count
    most = np.minimum(np.sqrt(kinds).astype(np.int64), count)
    return sum_of_largest(owners, sizes, most) / np.maximum(total, 1)


def _prepare(settings: Any) -> MeasureTexts:
    stop_words = STOP_WORDS if settings.stop_words is None else words_in(settings.stop_words, "documents.stop_words")
    flagged = words_in(settings.flagged_words, "documents.flagged_words")

    def measure(batch: TextBatch) -> Sequence[np.ndarray | pa.Array]:
        return (
            batch.with_totals(plain_words_of(batch).per_text),
            _punctuation(batch),
            _listed(batch, stop_words),
            _listed(batch, flagged),
            _repeated_words(batch),
            _repeated_characters(batch),
        )

    return measure


register_scorer(
    Scorer(
        "obelics",
        {**dict.fromkeys(_COLUMNS, "double"), "plain_words": "int64"},
        _prepare,
        about="the rules of OBELICS on punctuation, listed words and repetition",
        ranges={**dict.fromkeys(_COLUMNS, Range(0, 1)), "plain_words": Range(low=0)},
        version=2,
        meanings=_COLUMNS,
        options={
            "stop_words": (
                str | None,
                Field(
                    default=None,
                    description="File with a word a line that stop_word_share counts. Default none: a list of English "
                    "function words.",
                ),
            ),
            "flagged_words": (
                str | None,
                Field(
                    default=None,
                    description="File with a word a line that flagged_words counts. Default none: no word is flagged.",
                ),
            ),
        },
        files=("stop_words", "flagged_words"),
        section="documents",
        after="lines",
    )
)
