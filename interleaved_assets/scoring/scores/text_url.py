"""Words in the URL of a document, of a list that the user names."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from interleaved_assets.scoring.protocol.scorer import MeasureTexts, Range, Scorer, register_scorer
from interleaved_assets.scoring.texts.batch import TextBatch
from interleaved_assets.scoring.texts.lists import words_in
from interleaved_assets.scoring.texts.words import count_parts


def _prepare(settings: Any) -> MeasureTexts:
    words = words_in(settings.url_words, "documents.url_words")

    def measure(batch: TextBatch) -> Sequence[np.ndarray | pa.Array]:
        urls = batch.field(settings.url_field)
        if urls is None or not words:
            return [batch.documents_only(np.zeros(batch.documents, dtype=np.int64))]
        lower = pc.utf8_lower(pc.fill_null(urls, "")).to_pylist()
        return [batch.documents_only(count_parts(lower, words))]

    return measure


register_scorer(
    Scorer(
        "url",
        {"url_words": "int64"},
        _prepare,
        about="listed words in the URL",
        ranges={"url_words": Range(low=0)},
        meanings={
            "url_words": "How many words of the list of documents.url_words occur in the document's URL in any case, "
            "also as parts of its words, from 0; 0 without a URL; null for a text (NVIDIA's pipeline)."
        },
        options={
            "url_words": (
                str | None,
                Field(
                    default=None,
                    description="File with a word a line that the score url_words looks for in the URL of a document. "
                    "Default none: no word is counted.",
                ),
            ),
            "url_field": (
                str,
                Field(
                    default="url",
                    min_length=1,
                    description="Field of the documents with their URL, by its path, such as meta.url. Default url.",
                ),
            ),
        },
        fields=("url_field",),
        needs=lambda settings: ("url_field",) if settings.url_words is not None else (),
        files=("url_words",),
        of_documents=("url_words",),
        section="documents",
        after="personal_data",
    )
)
