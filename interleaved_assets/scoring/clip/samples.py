"""Samples read from rows, and the table of CLIP scores made of them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from interleaved_assets.io.rows.batches import binary_views
from interleaved_assets.model.errors import row_error
from interleaved_assets.scoring.clip.columns import clip_columns
from interleaved_assets.scoring.clip.settings import ClipSettings
from interleaved_assets.scoring.images.containers import Buffer
from interleaved_assets.scoring.scores.clip import EMBEDDING

Pixels = NDArray[np.uint8]
"""Height x width x 3, the channels red, green, blue, 0 to 255."""
Tokens = NDArray[np.int32]
"""Token ids of one text or window, start and end marker included; at most the model's context length, not padded."""
Vector = NDArray[np.float32]

NO_TEXT: Final = row_error("no_text", "no text row of the sample has any characters but white space")
_NO_BYTES: Final = row_error("missing_source", "the row has no bytes; materialize it first")


def clip_schema(settings: ClipSettings, width: int) -> pa.Schema:
    """Return the schema of a CLIP score table with embeddings of ``width`` values; see ``columns.py``."""
    types = {EMBEDDING: pa.list_(pa.float16(), width)}
    columns = clip_columns(settings)
    return pa.schema([pa.field(name, types.get(name, dtype), nullable) for name, dtype, nullable, _ in columns])


@dataclass
class ClipImage:
    """An image row: its bytes until they are decoded, then the model's result for it or an error.

    Attributes:
        data: the file's bytes; empty once they are decoded, and for an image with an error.
        values: its embedding, followed by the score of each head, float32.
    """

    position: int
    data: Buffer = b""
    error: str | None = None
    values: Vector | None = None


@dataclass
class ClipText:
    """A token sequence, the same object for all texts that have it.

    Attributes:
        key: the bytes of its tokens.
        is_met: whether it was met before.
        values: its embedding, once it is computed.
    """

    key: bytes
    is_met: bool = False
    values: Vector | None = None

    @property
    def tokens(self) -> Tokens:
        """The tokens that the model is given."""
        return np.frombuffer(self.key, np.int32)


@dataclass
class ClipSample:
    """The images and texts of one sample.

    Attributes:
        texts: position and stripped text of every text row that has any, in the order of the rows.
        pieces: for each text, the token sequences it was cut into.
    """

    sample_id: str
    images: list[ClipImage] = field(default_factory=list)
    texts: list[tuple[int, str]] = field(default_factory=list)
    pieces: list[list[ClipText]] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """True if everything that its scores are computed from is available."""
        is_text_missing = any(text.values is None for pieces in self.pieces for text in pieces)
        return not is_text_missing and all(image.error or image.values is not None for image in self.images)

    def scores(self, settings: ClipSettings) -> list[dict[str, object]]:
        """Return its rows of the score table, by column of :func:`clip_schema`; a missing value is null."""
        rows: list[dict[str, object]] = [
            {
                "sample_id": self.sample_id,
                "position": image.position,
                "clip_error": image.error or (None if self.texts else NO_TEXT),
            }
            for image in self.images
        ]
        embedded = {index: image.values for index, image in enumerate(self.images) if image.values is not None}
        if not embedded:
            return rows
        values = np.stack(list(embedded.values()))
        vectors, of_heads = np.split(values, [values.shape[1] - len(settings.heads)], axis=1)
        columns: dict[str, Iterable[object]] = dict(zip(settings.head_columns, of_heads.T.tolist(), strict=True))
        if self.texts:
            columns["clip_score"], columns["clip_text_position"] = self._best_text(vectors)
        if settings.keep_embeddings:
            columns["embedding"] = vectors.astype(np.float16)
        for index, *cells in zip(embedded, *columns.values(), strict=True):
            rows[index].update(zip(columns, cells, strict=True))
        return rows

    def _best_text(self, vectors: Vector) -> tuple[list[float], list[int]]:
        """Return each image's highest cosine similarity to any text, and that text's position."""
        # equal texts share one column, so that rounding does not decide which of them is first
        texts = {text.key: text.values for pieces in self.pieces for text in pieces if text.values is not None}
        similarity = dict(zip(texts, (vectors @ np.stack(list(texts.values())).T).T, strict=True))
        of_text = np.stack([np.max([similarity[text.key] for text in pieces], axis=0) for pieces in self.pieces])
        best = of_text.argmax(axis=0)
        scores = np.clip(of_text.max(axis=0).astype(np.float64), -1, 1)
        return scores.tolist(), [self.texts[index][0] for index in best]


def samples_of(table: pa.Table, left_out: Mapping[tuple[str, int], str] = {}) -> Iterator[ClipSample]:
    """Yield the samples of ``table`` that have images, in the order of their first rows; bytes are not copied.

    A ``materialize_error`` becomes the image's ``clip_error``. ``left_out`` has the errors of other images, by sample
    id and position.
    """
    samples: dict[str, ClipSample] = {}
    ids, positions, modalities = (table[name].to_pylist() for name in ("sample_id", "position", "modality"))
    has_errors = "materialize_error" in table.column_names
    errors = table["materialize_error"].to_pylist() if has_errors else repeat(None, len(table))
    contents = binary_views(table["binary_content"])
    for key, modality, text, data, error in zip(
        zip(ids, positions, strict=True), modalities, table["text_content"], contents, errors, strict=True
    ):
        sample = samples.setdefault(key[0], ClipSample(key[0]))
        if modality == "image":
            error = error or (_NO_BYTES if data is None else left_out.get(key))
            sample.images.append(ClipImage(key[1], b"" if error else data or b"", error))
        elif modality == "text" and (stripped := (text.as_py() or "").strip()):
            sample.texts.append((key[1], stripped))
    return (sample for sample in samples.values() if sample.images)
