"""FineWeb's rules on the lines of a document (arXiv 2406.17557), as datatrove applies them."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from interleaved_assets.scoring.protocol.scorer import Range, Scorer, register_scorer
from interleaved_assets.scoring.texts.batch import TextBatch, share
from interleaved_assets.scoring.texts.lines import filled_lines, repeated_spans
from interleaved_assets.scoring.texts.words import words_of

LAST_MARKS: Final = ".!?…。！？।॥؟۔።"
"""Marks that end a sentence: of Latin, Greek and Cyrillic, Chinese and Japanese, Hindi, Arabic, Urdu and Amharic."""
_SHORT: Final = 30
_COLUMNS: Final = {
    "closed_lines": f"Share of the lines that are not blank that end with one of {LAST_MARKS}, 0 to 1 (FineWeb).",
    "short_lines": f"Share of the lines that are not blank of at most {_SHORT} characters, 0 to 1 (FineWeb).",
    "repeated_line_characters": "Characters of lines that are not blank and came before / characters without line "
    "feeds, 0 to 1 (FineWeb).",
    "newlines_per_word": "Line feeds / words, from 0; the empty line between two texts has two (FineWeb).",
}


def _measure(batch: TextBatch) -> Sequence[np.ndarray | pa.Array]:
    starts, ends, document = filled_lines(batch)
    marks = np.frombuffer(LAST_MARKS.encode("utf-32-le"), dtype=np.uint32)

    def per_document(of_lines: np.ndarray) -> np.ndarray:
        return np.bincount(document, weights=of_lines, minlength=batch.documents)

    lines = per_document(np.ones(len(starts)))
    newlines = batch.count_rows(batch.newlines)[batch.row_of_document]
    found = (
        share(per_document(np.isin(batch.codes[ends - 1], marks)), lines),
        share(per_document(ends - starts <= _SHORT), lines),
        share(repeated_spans(batch, starts, ends).characters, batch.characters[batch.row_of_document] - newlines),
        share(newlines, words_of(batch).per_document),
    )
    return [batch.documents_only(values) for values in found]


register_scorer(
    Scorer(
        "lines",
        dict.fromkeys(_COLUMNS, "double"),
        lambda _: _measure,
        about="FineWeb's rules on lines, of documents only",
        ranges={name: Range(low=0) if name == "newlines_per_word" else Range(0, 1) for name in _COLUMNS},
        meanings=_COLUMNS,
        of_documents=tuple(_COLUMNS),
        section="documents",
        after="repetition",
    )
)
