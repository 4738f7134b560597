"""Contents of one shard file: counts, columns, images by format and size, errors, first documents."""

from collections import Counter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict

from interleaved_assets.io.formats.shard import format_of
from interleaved_assets.io.rows.content_types import SNIFFED_BYTES, sniff
from interleaved_assets.model.errors import ImageError
from interleaved_assets.model.rows import filter_rows
from interleaved_assets.model.shown import cut_text, without_credentials
from interleaved_assets.pipeline.files.inputs import ShardFile
from interleaved_assets.pipeline.run.counts import RowCounter
from interleaved_assets.pipeline.run.publishable import ContentCounter, other_layout
from interleaved_assets.pipeline.run.record import Counts
from interleaved_assets.pipeline.stages.normalized import read_options
from interleaved_assets.scoring.images.size import image_size
from interleaved_assets.settings import Settings

_QUANTILES: Final = (0, 0.5, 1)
_SHOWN: Final = (
    *("sample_id", "position", "modality", "content_type", "text_content", "binary_content", "materialize_error"),
)
_LONGEST_TEXT: Final = 100


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True)


class ColumnFacts(_Facts):
    """One column: its Arrow type, and the number of rows in which it has a value."""

    name: str
    type: str
    values: int


class Spread(_Facts):
    """Smallest, median and largest of some numbers."""

    low: float
    median: float
    high: float


class ImageFacts(_Facts):
    """The images of one format; sizes are those of the images whose header can be read."""

    format: str
    """MIME type by the first bytes; ``unknown`` for others, ``missing`` for images without bytes."""
    images: int
    bytes: Spread | None
    width: Spread | None
    """In pixels."""
    height: Spread | None


class ItemFacts(_Facts):
    """One row of a document: a text, cut, or what an image is."""

    position: int
    modality: str
    content: str
    error: str | None


class FileFacts(_Facts):
    uri: str
    form: str
    """``tar`` or ``parquet``."""
    size: int
    """Bytes of the file."""
    counts: Counts
    columns: list[ColumnFacts]
    images: list[ImageFacts]
    """Most frequent format first."""
    errors: dict[str, int]
    """Rows with an error, by code."""
    layout: list[str]
    """Signs that the file is not laid out as the settings say; empty if it is."""
    notes: dict[str, int]
    """Irregularities of a tar that are no error of a row, counted by kind."""
    documents: dict[str, list[ItemFacts]]
    """The first documents by id."""


def inspect_file(file: ShardFile, settings: Settings, *, documents: int = 3) -> FileFacts:
    """Read a shard file once, of a tar that is cut what can be read; of images only the headers are decoded.

    The first ``documents`` documents are described.
    """
    counter, content, notes, filled = RowCounter(), ContentCounter(), Counter[str](), Counter[str]()
    formats: dict[str, list[tuple[int, int, int]]] = {}
    first: dict[str, list[ItemFacts]] = {}
    schema = pa.schema([])
    options = read_options(file.uri, settings, notes)._replace(accept_incomplete=True)
    form = format_of(file.uri, options.storage_options)
    for table in content.counting(form.tables(file.uri, options)):
        schema = table.schema
        counter.add(table)
        filled.update({name: table.num_rows - table[name].null_count for name in schema.names})
        for image in filter_rows(table, pc.equal(table["modality"], "image"))["binary_content"]:
            name, measured = _image(image)
            formats.setdefault(name, []).append(measured)
        if len(first) < documents:
            _add_documents(table, first, documents)
    return FileFacts(
        uri=without_credentials(file.uri),
        form=form.name,
        size=file.size,
        counts=counter.counts,
        columns=[ColumnFacts(name=one.name, type=str(one.type), values=filled[one.name]) for one in schema],
        images=[_image_facts(name, formats[name]) for name in sorted(formats, key=lambda name: -len(formats[name]))],
        errors=dict(counter.errors.most_common()),
        layout=other_layout(counter.counts.samples, content.counted, form, settings),
        notes={name: count for name, count in notes.items() if count},
        documents=first,
    )


def _image(content: pa.LargeBinaryScalar) -> tuple[str, tuple[int, int, int]]:
    """Return format, bytes, width and height of an image; 0 for what is not known."""
    if not content.is_valid:
        return "missing", (0, 0, 0)
    data = content.as_buffer()
    name = sniff(bytes(data[:SNIFFED_BYTES])) or "unknown"
    try:
        return name, (data.size, *image_size(data))
    except ImageError:
        return name, (data.size, 0, 0)


def _image_facts(name: str, measured: list[tuple[int, int, int]]) -> ImageFacts:
    sizes, widths, heights = (_spread(np.array(column)) for column in zip(*measured, strict=True))
    return ImageFacts(format=name, images=len(measured), bytes=sizes, width=widths, height=heights)


def _spread(values: Any) -> Spread | None:
    known = values[values > 0]
    if not len(known):
        return None
    low, median, high = np.quantile(known, _QUANTILES).tolist()
    return Spread(low=low, median=median, high=high)


def _add_documents(table: pa.Table, first: dict[str, list[ItemFacts]], documents: int) -> None:
    """Add the first samples of ``table`` to ``first``, as far as they are wanted."""
    ids = pc.unique(table["sample_id"]).slice(0, documents - len(first))
    for row in filter_rows(table, pc.is_in(table["sample_id"], value_set=ids)).select(_SHOWN).to_pylist():
        data = row["binary_content"]
        content = cut_text(row["text_content"] or "", _LONGEST_TEXT)
        if row["modality"] == "image":
            content = row["content_type"] or "image"
            if data is not None:
                name, (size, width, height) = _image(pa.scalar(data, pa.large_binary()))
                content = f"{name} {width} × {height}, {size:,} bytes" if width else f"{name}, {size:,} bytes"
        item = ItemFacts(
            position=row["position"], modality=row["modality"], content=content, error=row["materialize_error"]
        )
        first.setdefault(row["sample_id"], []).append(item)
