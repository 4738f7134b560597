"""The images and texts of a sample on their way to CLIP scores, and the table these end up in."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from interleaved_assets.model.errors import row_error
from interleaved_assets.scoring.clip.settings import ClipSettings, head_column
from interleaved_assets.scoring.containers import Buffer
from interleaved_assets.scoring.ranges import Range

Vector = NDArray[np.float32]

# Embeddings have length 1, and are stored as float16.
_LENGTH_OF_ONE: Final = Range(0.99, 1.01)

_NO_TEXT: Final = row_error("no_text", "no text row of the sample has any characters but white space")
_NO_BYTES: Final = row_error("missing_source", "the row has no bytes; materialize it first")


class ImageHead(Protocol):
    """What a head has to be able to do; :class:`interleaved_assets.scoring.clip.heads.Head` is one."""

    @property
    def column(self) -> str:
        """The column that its scores fill."""

    def score(self, embeddings: Vector) -> NDArray[np.float64]:
        """One number for each of n embeddings."""


@dataclass
class Image:
    """An image row: its bytes while they are needed, then its embedding, or why it has none.

    Attributes:
        position: of the row.
        data: the file's bytes; None once they are decoded, or where there are none.
        vector: its embedding.
        error: its ``clip_error``.
    """

    position: int
    data: Buffer | None
    vector: Vector | None = None
    error: str | None = None


@dataclass
class Sample:
    """The images and texts of one sample.

    Attributes:
        sample_id: its id.
        images: in the order of their rows.
        texts: position and stripped text of every text row that has any, in the order of the rows.
        pieces: for each text, the keys of the sequences it was cut into: their tokens.
        vectors: embeddings of the sequences by key.
        waiting: images and sequences still without an embedding.
    """

    sample_id: str
    images: list[Image] = field(default_factory=list)
    texts: list[tuple[int, str]] = field(default_factory=list)
    pieces: list[list[bytes]] = field(default_factory=list)
    vectors: dict[bytes, Vector] = field(default_factory=dict)
    waiting: int = 0


def samples_of(table: pa.Table) -> Iterator[Sample]:
    """The samples of ``table`` that have images, in the order of their first image or text row, bytes not copied.

    ``table`` has ``sample_id``, ``position``, ``modality``, ``text_content``, ``binary_content`` and where there is one
    ``materialize_error``, which becomes the image's ``clip_error``. All rows of a sample are in it.
    """
    wanted = pc.is_in(table["modality"], pa.array(["image", "text"]))
    rows = np.flatnonzero(wanted.to_numpy(zero_copy_only=False))
    if not len(rows):
        return
    ids = table["sample_id"].combine_chunks().dictionary_encode()
    codes = ids.indices.to_numpy()[rows]
    # samples in the order in which the dictionary met them, rows of one in their own order
    rows = rows[np.argsort(codes, kind="stable")]
    codes = np.sort(codes, kind="stable")
    positions = table["position"].to_numpy()
    is_image = pc.equal(table["modality"], "image").to_numpy(zero_copy_only=False)
    texts, contents = table["text_content"], table["binary_content"]
    errors = (
        table["materialize_error"] if "materialize_error" in table.column_names else pa.nulls(len(table), pa.string())
    )
    borders = np.flatnonzero(np.diff(codes)) + 1
    for part in np.split(rows, borders):
        if not is_image[part].any():
            continue
        sample = Sample(table["sample_id"][int(part[0])].as_py())
        for row in map(int, part):
            if is_image[row]:
                sample.images.append(_image(int(positions[row]), contents[row], errors[row].as_py()))
            elif text := (texts[row].as_py() or "").strip():
                sample.texts.append((int(positions[row]), text))
        yield sample


def _image(position: int, content: pa.Scalar, error: str | None) -> Image:
    data = content.as_buffer()
    if error is None and data is None:
        error = _NO_BYTES
    return Image(position, None if error else data, error=error)


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
        *(pa.field(head_column(name, head), pa.float64()) for name, head in settings.heads.items()),
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


class ScoreTable:
    """The score table of one shard while its samples are scored, in whatever order they get there."""

    def __init__(self, schema: pa.Schema, heads: Sequence[ImageHead]) -> None:
        self._schema, self._heads = schema, heads
        self._columns: list[Mapping[str, Sequence[object]] | None] = []

    def reserve(self) -> int:
        """A place for the next sample."""
        self._columns.append(None)
        return len(self._columns) - 1

    def fill(self, place: int, sample: Sample) -> None:
        """The scores of a sample that has all its embeddings."""
        images = sample.images
        columns: dict[str, Sequence[object]] = {
            "sample_id": [sample.sample_id] * len(images),
            "position": [image.position for image in images],
            "clip_error": [image.error or (None if sample.texts else _NO_TEXT) for image in images],
        }
        embedded = [index for index, image in enumerate(images) if image.vector is not None]
        if embedded:
            vectors = np.stack([image.vector for image in images if image.vector is not None])
            if sample.texts:
                scores, best = _best_text(vectors, sample)
                columns["clip_score"] = _spread(scores.tolist(), embedded, len(images))
                columns["clip_text_position"] = _spread(best, embedded, len(images))
            for head in self._heads:
                columns[head.column] = _spread(head.score(vectors).tolist(), embedded, len(images))
            if "embedding" in self._schema.names:
                columns["embedding"] = _spread(list(vectors.astype(np.float16)), embedded, len(images))
        self._columns[place] = columns

    def table(self) -> pa.Table:
        """The table, once every place is filled."""
        parts = [columns for columns in self._columns if columns is not None]
        arrays = []
        for column in self._schema:
            values: list[object] = []
            for part in parts:
                values += part.get(column.name) or [None] * len(part["position"])
            arrays.append(_array(values, column.type))
        return pa.Table.from_arrays(arrays, schema=self._schema)


def _best_text(vectors: Vector, sample: Sample) -> tuple[NDArray[np.float64], list[int]]:
    """Each image's highest cosine similarity to any text, and that text's position."""
    keys = list(dict.fromkeys(key for pieces in sample.pieces for key in pieces))
    similarity = vectors @ np.stack([sample.vectors[key] for key in keys]).T
    # equal texts share one column, so that which of them is first does not hang on rounding
    column = {key: index for index, key in enumerate(keys)}
    of_text = np.stack([similarity[:, [column[key] for key in pieces]].max(axis=1) for pieces in sample.pieces], axis=1)
    best = of_text.argmax(axis=1)
    scores = np.clip(of_text[np.arange(len(vectors)), best].astype(np.float64), -1, 1)
    return scores, [sample.texts[index][0] for index in best]


def _spread(values: Sequence[object], places: Sequence[int], count: int) -> list[object]:
    """``count`` values: ``values`` at ``places``, None elsewhere."""
    spread: list[object] = [None] * count
    for place, value in zip(places, values, strict=True):
        spread[place] = value
    return spread


def _array(values: list[object], dtype: pa.DataType) -> pa.Array:
    if not pa.types.is_fixed_size_list(dtype):
        return pa.array(values, dtype)
    width = dtype.list_size
    empty = np.zeros(width, np.float16)
    flat = (
        np.concatenate([empty if value is None else value for value in values]) if values else np.zeros(0, np.float16)
    )
    missing = pa.array([value is None for value in values], pa.bool_())
    return pa.FixedSizeListArray.from_arrays(pa.array(flat, pa.float16()), width, mask=missing)
