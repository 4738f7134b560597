"""Gopher's rules on the words and lines of a document (arXiv 2112.11446, section A.1.1), as datatrove applies them."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from interleaved_assets.scoring.protocol.scorer import Range, Scorer, register_scorer
from interleaved_assets.scoring.texts import characters
from interleaved_assets.scoring.texts.batch import TextBatch, share
from interleaved_assets.scoring.texts.lines import ellipses, line_marks
from interleaved_assets.scoring.texts.words import present_words, words_of

STOP_WORDS: Final = ("the", "be", "to", "of", "and", "that", "have", "with")
"""Gopher's stop words: a document has to have two of them."""
_COLUMNS: Final = {
    "mean_word_length": "Characters of a word on average, of words that are not all punctuation, from 0 (Gopher).",
    "letter_words": "Share of the words that have a letter, 0 to 1 (Gopher).",
    "hashes_per_word": "Signs # / words, from 0 (Gopher).",
    "ellipses_per_word": "Ellipses (… or three dots) / words, from 0 (Gopher).",
    "bullet_lines": "Share of the lines that begin with a bullet • or a hyphen, 0 to 1 (Gopher).",
    "ellipsis_lines": "Share of the lines that end with an ellipsis, 0 to 1 (Gopher).",
}
_SHARES: Final = ("letter_words", "bullet_lines", "ellipsis_lines")


def _measure(batch: TextBatch) -> Sequence[np.ndarray | pa.Array]:
    words = words_of(batch)
    symbols = characters.is_of(batch.classes, characters.PUNCTUATION, characters.CONTROL)
    is_plain = words.having(~symbols)
    has_letter = words.having(characters.is_of(batch.classes, characters.LETTER))

    count = batch.with_totals(words.per_text)
    plain = batch.with_totals(words.sums(is_plain))
    hashes = batch.count(batch.codes == ord("#"))
    lines = line_marks(batch)
    return (
        share(batch.with_totals(words.sums(words.lengths * is_plain)), plain),
        share(batch.with_totals(words.sums(has_letter)), count),
        share(batch.with_totals(hashes), count),
        share(batch.with_totals(ellipses(batch)), count),
        share(lines.bullets, lines.lines),
        share(lines.ellipses, lines.lines),
        present_words(batch, words.hashes, frozenset(STOP_WORDS)),
    )


register_scorer(
    Scorer(
        "quality",
        {**dict.fromkeys(_COLUMNS, "double"), "stop_words": "int64"},
        lambda _: _measure,
        about="Gopher's rules on words and lines",
        ranges={
            **{name: Range(0, 1) if name in _SHARES else Range(low=0) for name in _COLUMNS},
            "stop_words": Range(0, len(STOP_WORDS)),
        },
        meanings={
            **_COLUMNS,
            "stop_words": f"How many of the words {', '.join(STOP_WORDS)} occur, 0 to {len(STOP_WORDS)} (Gopher).",
        },
        section="documents",
        after="characters",
    )
)
