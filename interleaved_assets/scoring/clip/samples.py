"""Samples read from rows, and the table of CLIP scores made of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

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


@dataclass
class ClipImage:
    """An image row: its bytes while they are needed, then what the model gave for it, or why it gave nothing.

    Attributes:
        position: of the row.
        data: the file's bytes; None once they are decoded, or where there are none.
        values: its embedding, followed by the score of each head, float32.
        error: its ``clip_error``.
    """

    position: int
    data: Buffer | None
    values: Vector | None = None
    error: str | None = None


@dataclass
class ClipSample:
    """The images and texts of one sample.

    Attributes:
        sample_id: its id.
        images: in the order of their rows.
        texts: position and stripped text of every text row that has any, in the order of the rows.
        pieces: for each text, the keys of the token sequences it was cut into.
        vectors: embeddings of the sequences by key.
        tokens: the sequences that have no embedding yet, by key.
        waiting: images and sequences still without an embedding.
        columns: its part of the score table, once that is computed.
    """

    sample_id: str
    images: list[ClipImage] = field(default_factory=list)
    texts: list[tuple[int, str]] = field(default_factory=list)
    pieces: list[list[bytes]] = field(default_factory=list)
    vectors: dict[bytes, Vector] = field(default_factory=dict)
    tokens: dict[bytes, NDArray[np.int32]] = field(default_factory=dict)
    waiting: int = 0
    columns: Mapping[str, Sequence[object]] = field(default_factory=dict)


def samples_of(table: pa.Table) -> Iterator[ClipSample]:
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
        sample = ClipSample(table["sample_id"][int(part[0])].as_py())
        for row in map(int, part):
            if is_image[row]:
                sample.images.append(_image(int(positions[row]), contents[row], errors[row].as_py()))
            elif text := (texts[row].as_py() or "").strip():
                sample.texts.append((int(positions[row]), text))
        yield sample


def _image(position: int, content: pa.Scalar, error: str | None) -> ClipImage:
    data = content.as_buffer()
    if error is None and data is None:
        error = _NO_BYTES
    return ClipImage(position, None if error else data, error=error)


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


@dataclass
class ShardScores:
    """The samples of one shard, scored in any order, and the score table they give.

    Attributes:
        name: of the shard.
        schema: from :func:`clip_schema`.
        head_columns: the columns of the heads, in the order of their scores in :attr:`ClipImage.values`.
        samples: in the order of the table's rows.
        open_samples: samples met that are not scored yet.
        open_images: images of theirs that were not given to the model yet.
        is_read: whether all samples have been met.
    """

    name: str
    schema: pa.Schema
    head_columns: Sequence[str] = ()
    samples: list[ClipSample] = field(default_factory=list)
    open_samples: int = 0
    open_images: int = 0
    is_read: bool = False

    def score(self, sample: ClipSample) -> None:
        """Compute the columns of a sample that has all its embeddings, and let go of these."""
        images = sample.images
        columns: dict[str, Sequence[object]] = {
            "sample_id": [sample.sample_id] * len(images),
            "position": [image.position for image in images],
            "clip_error": [image.error or (None if sample.texts else _NO_TEXT) for image in images],
        }
        embedded = [index for index, image in enumerate(images) if image.values is not None]
        if embedded:
            values = np.stack([image.values for image in images if image.values is not None])
            width = values.shape[1] - len(self.head_columns)
            vectors = values[:, :width]
            filled: dict[str, Sequence[object]] = {}
            if sample.texts:
                scores, filled["clip_text_position"] = _best_text(vectors, sample)
                filled["clip_score"] = scores.tolist()
            filled |= zip(self.head_columns, values[:, width:].T.tolist(), strict=True)
            if "embedding" in self.schema.names:
                filled["embedding"] = list(vectors.astype(np.float16))
            columns |= {name: _spread(column, embedded, len(images)) for name, column in filled.items()}
        sample.columns = columns
        sample.images, sample.texts, sample.pieces, sample.vectors = [], [], [], {}

    def table(self) -> pa.Table:
        """The table, once every sample is scored."""
        arrays = []
        for column in self.schema:
            values: list[object] = []
            for part in (sample.columns for sample in self.samples):
                values += part.get(column.name) or [None] * len(part["position"])
            arrays.append(_array(values, column.type))
        return pa.Table.from_arrays(arrays, schema=self.schema)


def _best_text(vectors: Vector, sample: ClipSample) -> tuple[NDArray[np.float64], list[int]]:
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
