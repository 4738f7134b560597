"""Words, characters, texts and images of documents, which every table of document scores has."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from interleaved_assets.scoring.protocol.scorer import Range, Scorer, register_scorer
from interleaved_assets.scoring.texts.batch import TextBatch
from interleaved_assets.scoring.texts.words import word_counts

_COLUMNS: Final = {
    "words": "int64",
    "characters": "int64",
    "images": "int64",
    "images_per_word": "double",
    "texts": "int64",
    "longest_text": "int64",
}


def _measure(batch: TextBatch) -> Sequence[np.ndarray | pa.Array]:
    """Count words split on white space; images are compared with at least one word, as the filter ``ratio`` does."""
    words = word_counts(batch)
    of_documents = batch.total(words)
    longest = np.zeros(batch.documents, dtype=np.int64)
    np.maximum.at(longest, batch.document_of_text, words)
    return (
        batch.with_totals(words),
        batch.characters,
        batch.documents_only(batch.images),
        batch.documents_only(batch.images / np.maximum(of_documents, 1)),
        batch.documents_only(batch.texts_of_document),
        batch.documents_only(longest),
    )


register_scorer(
    Scorer(
        "words",
        _COLUMNS,
        lambda _: _measure,
        ranges=dict.fromkeys(_COLUMNS, Range(low=0)),
        meanings={
            "words": "Words, split on white space as str.split does, from 0 (Gopher, OBELICS).",
            "characters": "Code points, from 0; of a document with an empty line between its texts (Gopher's shares "
            "are of them).",
            "images": "Images of the document, from 0; null for a text (OBELICS, MMC4).",
            "images_per_word": "Images / words of the document, at least one word, from 0; null for a text (NeMo "
            "Curator's image-to-text ratio).",
            "texts": "Text rows of the document, from 0; null for a text (this package).",
            "longest_text": "Words of the longest text of the document, from 0; null for a text (this package).",
        },
        of_documents=("images", "images_per_word", "texts", "longest_text"),
        of_whole=True,
        section="documents",
        after="counts",
    )
)
