"""Samples read from rows, and the table of CLIP scores made of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from interleaved_assets.io.batches import binary_views
from interleaved_assets.model.errors import row_error
from interleaved_assets.scoring.clip.settings import ClipSettings, head_column
from interleaved_assets.scoring.containers import Buffer
from interleaved_assets.scoring.ranges import Range

Pixels = NDArray[np.uint8]
"""Height x width x 3, the channels red, green, blue, 0 to 255."""
Tokens = NDArray[np.int32]
"""Token ids of one text or window, start and end marker included; at most the model's context length, not padded."""
Vector = NDArray[np.float32]

# Embeddings have length 1, and are stored as float16.
_LENGTH_OF_ONE: Final = Range(0.99, 1.01)

_NO_TEXT: Final = row_error("no_text", "no text row of the sample has any characters but white space")
_NO_BYTES: Final = row_error("missing_source", "the row has no bytes; materialize it first")


def clip_schema(settings: ClipSettings, width: int) -> pa.Schema:
    """Columns of a CLIP score table: one row an image, in the order of the samples and their rows.

    ``clip_score`` is the highest cosine similarity to a text of the image's sample, -1 to 1, and ``clip_text_position``
    the position of that text's row; of equal ones the first. Each head fills a column with its own range. ``embedding``
    is there with ``keep_embeddings``, float16, of length 1. ``clip_error`` is ``"<code>: <detail>"`` where there is no
    ``clip_score``, null otherwise; where it is ``no_text``, the heads' columns and the embedding are filled still.
    """
    fields = [
        pa.field("sample_id", pa.string(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("clip_score", pa.float64()),
        pa.field("clip_text_position", pa.int32()),
        *(pa.field(column, pa.float64()) for column in settings.head_columns),
    ]
    if settings.keep_embeddings:
        fields.append(pa.field("embedding", pa.list_(pa.float16(), width)))
    return pa.schema([*fields, pa.field("clip_error", pa.string())])


def clip_ranges(settings: ClipSettings) -> dict[str, Range]:
    """What each column of that table can hold; a head's own range is known where a sigmoid is behind it."""
    heads = {
        head_column(name, head): Range(0, 1) if head.output_squash == "sigmoid" else Range()
        for name, head in settings.heads.items()
    }
    return {"clip_score": Range(-1, 1), "clip_text_position": Range(low=0), **heads, "embedding": _LENGTH_OF_ONE}


@dataclass
class ClipImage:
    """An image row: its bytes while they are needed, then what the model gave for it, or why it gave nothing.

    Attributes:
        position: of the row.
        data: the file's bytes; empty once they are decoded, and where there is an error.
        error: its ``clip_error``.
        is_pending: whether it is still to be decoded or embedded.
        row: of its pixels in a batch; None where nothing is asked of its embedding.
        values: its embedding, followed by the score of each head, float32.
    """

    position: int
    data: Buffer = b""
    error: str | None = None
    is_pending: bool = False
    row: int | None = None
    values: Vector | None = None


@dataclass
class ClipText:
    """A token sequence, the same object for all texts that have it.

    Attributes:
        key: the bytes of its tokens.
        is_met: whether it was met before.
        vector: its embedding, once it is there.
    """

    key: bytes
    is_met: bool = False
    vector: Vector | None = None

    @property
    def tokens(self) -> Tokens:
        """What the model is given."""
        return np.frombuffer(self.key, np.int32)


@dataclass
class ClipSample:
    """The images and texts of one sample.

    Attributes:
        sample_id: its id.
        images: in the order of their rows.
        texts: position and stripped text of every text row that has any, in the order of the rows.
        pieces: for each text, the token sequences it was cut into.
    """

    sample_id: str
    images: list[ClipImage] = field(default_factory=list)
    texts: list[tuple[int, str]] = field(default_factory=list)
    pieces: list[list[ClipText]] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether all is there that its scores are computed from."""
        is_text_missing = any(text.vector is None for pieces in self.pieces for text in pieces)
        return not is_text_missing and not any(image.is_pending for image in self.images)

    def scores(self, settings: ClipSettings) -> list[dict[str, object]]:
        """Its rows of the score table, by column of :func:`clip_schema`; what is missing is null."""
        rows: list[dict[str, object]] = [
            {
                "sample_id": self.sample_id,
                "position": image.position,
                "clip_error": image.error or (None if self.texts else _NO_TEXT),
            }
            for image in self.images
        ]
        embedded = [
            (row, image.values) for row, image in zip(rows, self.images, strict=True) if image.values is not None
        ]
        if not embedded:
            return rows
        values = np.stack([values for _, values in embedded])
        width = values.shape[1] - len(settings.heads)
        vectors = values[:, :width]
        columns: dict[str, Sequence[object]] = {}
        if self.texts:
            columns["clip_score"], columns["clip_text_position"] = self._best_text(vectors)
        columns |= zip(settings.head_columns, values[:, width:].T.tolist(), strict=True)
        if settings.keep_embeddings:
            columns["embedding"] = list(vectors.astype(np.float16))
        for name, column in columns.items():
            for (row, _), value in zip(embedded, column, strict=True):
                row[name] = value
        return rows

    def _best_text(self, vectors: Vector) -> tuple[list[float], list[int]]:
        """Each image's highest cosine similarity to any text, and that text's position."""
        # equal texts share one column, so that which of them is first does not hang on rounding
        texts = {text.key: text.vector for pieces in self.pieces for text in pieces if text.vector is not None}
        column = {key: index for index, key in enumerate(texts)}
        similarity = vectors @ np.stack(list(texts.values())).T
        columns = [[column[text.key] for text in pieces] for pieces in self.pieces]
        of_text = np.stack([similarity[:, places].max(axis=1) for places in columns], axis=1)
        best = of_text.argmax(axis=1)
        scores = np.clip(of_text[np.arange(len(vectors)), best].astype(np.float64), -1, 1)
        return scores.tolist(), [self.texts[index][0] for index in best]


def samples_of(table: pa.Table) -> Iterator[ClipSample]:
    """The samples of ``table`` that have images, in the order of their first rows, bytes not copied.

    ``table`` has ``sample_id``, ``position``, ``modality``, ``text_content``, ``binary_content`` and where there is one
    ``materialize_error``, which becomes the image's ``clip_error``. All rows of a sample are in it.
    """
    rows: dict[str, list[int]] = {}
    for row, sample_id in enumerate(table["sample_id"].to_pylist()):
        rows.setdefault(sample_id, []).append(row)
    positions, modality = table["position"].to_pylist(), table["modality"].to_pylist()
    texts, contents = table["text_content"], binary_views(table["binary_content"])
    has_errors = "materialize_error" in table.column_names
    errors = table["materialize_error"].to_pylist() if has_errors else [None] * len(table)
    for sample_id, part in rows.items():
        if not any(modality[row] == "image" for row in part):
            continue
        sample = ClipSample(sample_id)
        for row in part:
            if modality[row] == "image":
                error = errors[row] or (_NO_BYTES if contents[row] is None else None)
                sample.images.append(ClipImage(positions[row], contents[row] or b"", error))
            elif modality[row] == "text" and (text := (texts[row].as_py() or "").strip()):
                sample.texts.append((positions[row], text))
        yield sample
