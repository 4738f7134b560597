"""Gopher's rules on repetition within a document (arXiv 2112.11446, table A1), as datatrove applies them."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from interleaved_assets.scoring.protocol.scorer import Range, Scorer, register_scorer
from interleaved_assets.scoring.texts.batch import TextBatch, running_sum, share
from interleaved_assets.scoring.texts.hashes import SpanHashes, mixed
from interleaved_assets.scoring.texts.lines import repeated_lines, repeated_paragraphs
from interleaved_assets.scoring.texts.repeats import find_repeats, most_frequent, skipping_duplicates
from interleaved_assets.scoring.texts.words import words_of

_TOP: Final = (2, 3, 4)
_DUPLICATE: Final = (5, 6, 7, 8, 9, 10)
_COLUMNS: Final = {
    "duplicate_lines": "Share of the lines that came before in the document, 0 to 1 (Gopher).",
    "duplicate_line_characters": "Characters of these lines / characters, 0 to 1 (Gopher).",
    "duplicate_paragraphs": "Share of the paragraphs that came before in the document, 0 to 1 (Gopher).",
    "duplicate_paragraph_characters": "Characters of these paragraphs / characters, 0 to 1 (Gopher).",
    "top_word": "Share of the words that are the most frequent one, in any case, 0 to 1 (OmniCorpus, as NVIDIA's "
    "pipeline counts it).",
    **{
        f"top_{length}_gram": f"Characters of the most frequent run of {length} words, all its occurrences together "
        "/ characters, from 0; above 1 where occurrences overlap (Gopher)."
        for length in _TOP
    },
    **{
        f"top_{length}_gram_words": f"Words of the most frequent run of {length} words, all its occurrences together "
        "/ words, from 0; above 1 where occurrences overlap (NVIDIA's pipeline)."
        for length in _TOP
    },
    **{
        f"duplicate_{length}_gram": f"Characters in runs of {length} words that came before in the document "
        "/ characters, 0 to 1; no word counts twice (Gopher)."
        for length in _DUPLICATE
    },
}


def _measure(batch: TextBatch) -> Sequence[np.ndarray | pa.Array]:
    characters = batch.characters[batch.row_of_document]
    found: list[np.ndarray] = []
    for repeated in (repeated_lines(batch), repeated_paragraphs(batch)):
        found += [share(repeated.repeated, repeated.elements), share(repeated.characters, characters)]
    found += _runs(batch, characters)
    return [batch.documents_only(values) for values in found]


def _runs(batch: TextBatch, characters: np.ndarray) -> list[np.ndarray]:
    """Return the values of the columns on words and runs of words, in their order, of each document."""
    words = words_of(batch)
    before = running_sum(words.lengths)
    first = np.cumsum(words.per_document) - words.per_document
    repeats = find_repeats(words.lower_hashes, words.per_document)
    found = [share(most_frequent(repeats, batch.documents, first)[1] * (words.per_document > 0), words.per_document)]
    of_words, of_runs = [], []
    runs = SpanHashes(mixed(words.hashes))
    for length in range(_TOP[0], _DUPLICATE[-1] + 1):
        # a run can only occur twice if the runs one word shorter, at its start and after it, do, which includes those
        # that differ in case alone
        places = repeats.places[:-1][repeats.places[1:] == repeats.places[:-1] + 1]
        of_document = words.document[places]
        if length == _TOP[0]:  # of two words that follow each other, each may be in another document
            inside = of_document == words.document[places + 1]
            places, of_document = places[inside], of_document[inside]
        counts = np.bincount(of_document, minlength=batch.documents)
        repeats = find_repeats(runs.of(places, places + length), counts, places)
        if length in _TOP:
            place, count = most_frequent(repeats, batch.documents, first)
            has_run = words.per_document >= length
            place, last = np.where(has_run, place, 0), np.where(has_run, place + length, 0)
            size = before[last] - before[place] + length - 1
            found.append(share(count * size * has_run, characters))
            of_words.append(share(count * length * has_run, words.per_document))
        elif length >= _DUPLICATE[0]:
            place = skipping_duplicates(repeats, length)
            sizes = before[place + length] - before[place]
            total = np.bincount(words.document[place], weights=sizes, minlength=batch.documents)
            of_runs.append(share(total, characters))
    return [*found, *of_words, *of_runs]


register_scorer(
    Scorer(
        "repetition",
        dict.fromkeys(_COLUMNS, "double"),
        lambda _: _measure,
        about="Gopher's rules on repetition, of documents only",
        ranges={name: Range(low=0) if "_gram" in name and "top" in name else Range(0, 1) for name in _COLUMNS},
        version=2,
        meanings=_COLUMNS,
        of_documents=tuple(_COLUMNS),
        section="documents",
        after="quality",
    )
)
