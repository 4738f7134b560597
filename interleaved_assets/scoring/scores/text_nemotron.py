"""The rules of NVIDIA's pipeline for Common Crawl on words and lines of a document.

They follow ``nemo_curator/stages/nemotron_cc_mm/text_filters.py`` of the branch ``nemotron_cc_mm`` in
NVIDIA-NeMo/Curator, and differ from Gopher's rules in the scorer ``quality``.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from interleaved_assets.scoring.protocol.scorer import Range, Scorer, register_scorer
from interleaved_assets.scoring.texts.batch import TextBatch, share
from interleaved_assets.scoring.texts.lines import (
    document_of,
    ellipses,
    end_with_ellipsis,
    repeated_spans,
    stripped_lines,
)
from interleaved_assets.scoring.texts.words import present_words, words_of

_BULLETS: Final = "-*•·‣▪◦–—"
_STOP_WORDS: Final = frozenset({"the", "be", "to", "of", "and", "that", "have", "with"})
_SOURCE: Final = "(NVIDIA's pipeline)"
_COLUMNS: Final = {
    "symbols_per_word": f"Signs # and &, … and three dots / words, from 0 {_SOURCE}.",
    "mean_length_of_all_words": f"Characters of a word on average, from 0 {_SOURCE}.",
    "latin_letter_words": f"Share of the words that have a letter from A to Z, 0 to 1 {_SOURCE}.",
    "bulleted_lines": f"Share of the lines that are not blank that begin with one of {' '.join(_BULLETS)}, 0 to 1 "
    f"{_SOURCE}.",
    "cut_lines": f"Share of the lines that are not blank that end with an ellipsis, 0 to 1 {_SOURCE}.",
    "same_lines": "Share of the lines that are not blank that came before in the document, without white space around "
    f"them, 0 to 1 {_SOURCE}.",
    "stop_words_in_any_case": f"How many of Gopher's stop words occur in any case, 0 to {len(_STOP_WORDS)} {_SOURCE}.",
}
_SHARES: Final = ("latin_letter_words", "bulleted_lines", "cut_lines", "same_lines")


def _measure(batch: TextBatch) -> Sequence[np.ndarray | pa.Array]:
    words = words_of(batch)
    symbols = batch.count(batch.codes == ord("#")) + batch.count(batch.codes == ord("&")) + ellipses(batch)
    latin = (batch.codes | np.uint32(ord(" "))) - np.uint32(ord("a")) < np.uint32(26)
    starts, ends = stripped_lines(batch)
    document = document_of(batch, starts)
    bullets = np.frombuffer(_BULLETS.encode("utf-32-le"), dtype=np.uint32)

    def lines(marked: np.ndarray) -> np.ndarray:
        return np.bincount(document[marked], minlength=batch.documents)

    count = np.bincount(document, minlength=batch.documents)
    characters = batch.total(words.sums(words.lengths))
    found = (
        share(batch.total(symbols), words.per_document),
        share(characters, words.per_document),
        share(batch.total(words.sums(words.having(latin))), words.per_document),
        share(lines(np.isin(batch.codes[starts], bullets)), count),
        share(lines(end_with_ellipsis(batch, starts, ends)), count),
        share(repeated_spans(batch, starts, ends).repeated, count),
        present_words(batch, words.lower_hashes, _STOP_WORDS)[batch.row_of_document],
    )
    return [batch.documents_only(values) for values in found]


register_scorer(
    Scorer(
        "nemotron",
        {**dict.fromkeys(_COLUMNS, "double"), "stop_words_in_any_case": "int64"},
        lambda _: _measure,
        about="the rules of NVIDIA's pipeline on words and lines, of documents only",
        ranges={
            **{name: Range(0, 1) if name in _SHARES else Range(low=0) for name in _COLUMNS},
            "stop_words_in_any_case": Range(0, len(_STOP_WORDS)),
        },
        meanings=_COLUMNS,
        of_documents=tuple(_COLUMNS),
        section="documents",
        after="obelics",
    )
)
