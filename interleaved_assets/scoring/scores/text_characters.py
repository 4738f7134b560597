"""Shares of characters of some kinds, and characters and phrases that code and templates leave behind."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from interleaved_assets.scoring.protocol.scorer import Range, Scorer, register_scorer
from interleaved_assets.scoring.texts import characters
from interleaved_assets.scoring.texts.batch import TextBatch, share
from interleaved_assets.scoring.texts.lines import blank_runs, count_places, find_phrase, stripped_lines


def _measure(batch: TextBatch) -> Sequence[np.ndarray | pa.Array]:
    def share_of(name: int) -> np.ndarray:
        return share(batch.count_rows(characters.is_of(batch.classes, name)), batch.characters)

    braces = batch.codes == ord("{")
    lines = batch.with_totals(count_places(batch, stripped_lines(batch)[0]))
    return (
        share_of(characters.UPPER),
        share_of(characters.DIGIT),
        share_of(characters.SPECIAL),
        batch.with_totals(batch.count(braces)),
        batch.with_totals(count_places(batch, find_phrase(batch.codes, "lorem ipsum"))),
        share(batch.with_totals(blank_runs(batch)), lines),
    )


register_scorer(
    Scorer(
        "characters",
        {
            "upper_case": "double",
            "digits": "double",
            "special_characters": "double",
            "curly_braces": "int64",
            "lorem_ipsum": "int64",
            "blank_runs": "double",
        },
        lambda _: _measure,
        about="shares of kinds of characters",
        ranges={
            "upper_case": Range(0, 1),
            "digits": Range(0, 1),
            "special_characters": Range(0, 1),
            "curly_braces": Range(low=0),
            "lorem_ipsum": Range(low=0),
            "blank_runs": Range(low=0),
        },
        meanings={
            "upper_case": "Share of the characters that are upper-case letters (Unicode's Lu), 0 to 1 (RefinedWeb, of "
            "lines).",
            "digits": "Share of the characters that are decimal digits (Unicode's Nd), 0 to 1 (RefinedWeb, of lines).",
            "special_characters": "Share of the characters that are white space, numbers, punctuation, symbols, emoji "
            "or control characters, 0 to 1 (OBELICS, which lists them).",
            "curly_braces": "Opening curly braces, from 0 (C4, which drops documents with one).",
            "lorem_ipsum": "Occurrences of 'lorem ipsum' in any case, from 0 (C4, which drops documents with one).",
            "blank_runs": "Runs of three or more line feeds within a text / lines that are not blank, from 0 "
            "(OmniCorpus, as NVIDIA's pipeline counts them).",
        },
        version=2,
        section="documents",
        after="words",
    )
)
