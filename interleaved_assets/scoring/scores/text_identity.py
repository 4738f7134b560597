"""Identities of documents and texts, by which a later step can find repeated ones. No filter compares them."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import xxhash

from interleaved_assets.scoring.protocol.scorer import MeasureTexts, Scorer, register_scorer
from interleaved_assets.scoring.texts.batch import TextBatch

_PIECE: Final = 2**20
"""Characters whose words are listed at once."""


def _prepare(settings: Any) -> MeasureTexts:
    def measure(batch: TextBatch) -> Sequence[np.ndarray | pa.Array]:
        urls = batch.field(settings.url_field)
        found: list[str | None] = [None] * (batch.documents + batch.texts)
        if urls is not None:
            for row, url in zip(batch.row_of_document.tolist(), urls.to_pylist(), strict=True):
                found[row] = _hash(url.strip()) if url else None
        return pa.array(_text_hashes(batch), pa.string()), pa.array(found, pa.string())

    return measure


def _text_hashes(batch: TextBatch) -> list[str | None]:
    """Return the hash of the words of each row, in lower case with single spaces between them; None without words."""
    found: list[str | None] = [None] * (batch.documents + batch.texts)
    words = [_spaced_words(text.lower()) for text in batch.contents.to_pylist()]
    for row, text in zip(batch.row_of_text.tolist(), words, strict=True):
        found[row] = _hash(text)
    first = 0
    for row, count in zip(batch.row_of_document.tolist(), batch.texts_of_document.tolist(), strict=True):
        found[row] = _hash(" ".join(filter(None, words[first : first + count])))
        first += count
    return found


def _spaced_words(text: str) -> str:
    """Return the words with single spaces between them. A long text is split piece by piece, as lists are big."""
    if len(text) <= _PIECE:
        return " ".join(text.split())
    found: list[str] = []
    for start in range(0, len(text), _PIECE):
        words = " ".join(text[start : start + _PIECE].split())
        if words:
            if found and (text[start].isspace() or text[start - 1].isspace()):
                found.append(" ")
            found.append(words)
    return "".join(found)


def _hash(text: str) -> str | None:
    return xxhash.xxh3_128_hexdigest(text.encode()) if text else None


register_scorer(
    Scorer(
        "identity",
        {"text_hash": "string", "url_hash": "string"},
        _prepare,
        about="hashes of texts and of the URL, to find repeated ones",
        meanings={
            "text_hash": "128-bit XXH3 of the words in lower case with single spaces between them, as 32 hex digits; "
            "null without words.",
            "url_hash": "128-bit XXH3 of the document's URL without white space around it; null without a URL, and for "
            "a text.",
        },
        fields=("url_field",),
        of_documents=("url_hash",),
        of_whole=True,
        section="documents",
        after="language",
    )
)
