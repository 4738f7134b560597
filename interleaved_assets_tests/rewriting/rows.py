"""Rows of documents for the tests of rewriting."""

from collections.abc import Sequence

import pyarrow as pa

from interleaved_assets.rewriting.functions import load_function
from interleaved_assets.rewriting.rewrite import Rewritten, rewrite

IMAGE = b"bytes"


def rows_of(*documents: Sequence[str | bytes | None]) -> pa.Table:
    """A metadata row and the items of each document: texts, images, and None for a text that could not be read."""
    lines = []
    for number, items in enumerate(documents):
        lines.append(("metadata", number, -1, None, None, None))
        for position, item in enumerate(items):
            text, image = (item, None) if isinstance(item, str) else (None, item)
            error = "invalid_text: a number" if item is None else None
            lines.append(("image" if image else "text", number, position, text, image, error))
    kinds, numbers, positions, texts, images, errors = zip(*lines, strict=True)
    return pa.table(
        {
            "sample_id": pa.array([f"doc-{number}" for number in numbers]),
            "position": pa.array(positions, pa.int32()),
            "modality": pa.array(kinds),
            "text_content": pa.array(texts, pa.string()),
            "binary_content": pa.array(images, pa.large_binary()),
            "materialize_error": pa.array(errors, pa.string()),
            "score": pa.array([float("nan") if kind == "metadata" else None for kind in kinds]),
        }
    )


def rewritten(rows: pa.Table, *names: str) -> Rewritten:
    return rewrite(rows, {name: load_function(name) for name in names}, stage="rewritten", shard="a")


def texts_after(name: str, *texts: str) -> list[str]:
    """The texts of one document that the function left."""
    result = rewritten(rows_of(texts), name).rows
    return [text for text in result["text_content"].to_pylist() if text is not None]
