"""The image rows of samples, each with the texts around it, its place of origin, and its document's fields."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from interleaved_assets.io.rows.batches import parts_within
from interleaved_assets.io.rows.value_bytes import value_bytes
from interleaved_assets.io.tar.layout import EMPTY_LISTS, LIST_LENGTH, NULL_FIELDS, UNREFERENCED_MEMBERS
from interleaved_assets.model.columns import RESERVED_COLUMNS
from interleaved_assets.model.errors import OptionError
from interleaved_assets.model.rows import filter_rows
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets.model.source_ref import parse_source_ref

PART_TEXT_BYTES: Final = 64 * 2**20
"""Most bytes of the texts around the images, and of the fields of their documents, that are written at once."""

_OF_THE_TAR: Final = frozenset({NULL_FIELDS, EMPTY_LISTS, LIST_LENGTH, UNREFERENCED_MEMBERS})

_RANK: Final = {"text": 0, "image": 1}


def image_rows(rows: pa.Table) -> pa.Table:
    """Return the image rows of ``rows`` in their order, with three more columns.

    ``text_before`` and ``text_after``: the nearest text of the sample before and after the image, null without one; at
    the same position, a text comes before an image. They are dictionaries, since a long text may be the nearest one of
    any number of images. ``original_path``: the place that the bytes were read from, ``<file>/<member>#frame=<n>``.
    """
    if missing := [name for name in INTERLEAVED_SCHEMA.names if name not in rows.column_names]:
        raise OptionError(f"the rows lack the columns {', '.join(missing)}")
    is_image = pc.equal(rows["modality"], "image")
    before, after = _nearest_texts(rows)
    images = filter_rows(rows.select(INTERLEAVED_SCHEMA.names), is_image).drop_columns(["text_content"])
    at = np.asarray(is_image, dtype=bool)
    near = np.unique(np.concatenate([[-1], before[at], after[at]]))[1:]  # without the -1 that stands for no text
    texts = rows["text_content"].cast(pa.large_string()).take(pa.array(near)).combine_chunks()
    for name, places in (("text_before", before[at]), ("text_after", after[at])):
        indices = pa.array(np.searchsorted(near, places), pa.int32(), mask=places < 0)
        images = images.append_column(name, pa.DictionaryArray.from_arrays(indices, texts))
    paths = [_original_path(ref) for ref in images["source_ref"].to_pylist()]
    return images.append_column("original_path", pa.array(paths, pa.string()))


def document_fields(schema: pa.Schema) -> pa.Schema:
    """Return the documents' own fields: the columns that are neither of the row model nor of the tar layout."""
    names = (name for name in schema.names if name not in RESERVED_COLUMNS and name not in _OF_THE_TAR)
    return pa.schema([schema.field(name).with_nullable(True) for name in names])


class DocumentFields:
    """The documents' own fields for each image of ``rows``, in the order of :func:`image_rows`.

    A value is that of the image's own row, such as ``image_metadata``; if that is null, that of the metadata row of its
    sample. Values of one document may belong to any number of images, so they are copied in parts.

    Attributes:
        schema: the fields with their types.
    """

    def __init__(self, rows: pa.Table) -> None:
        self.schema = document_fields(rows.schema)
        self._rows = rows.select(self.schema.names)
        images = np.flatnonzero(pc.equal(rows["modality"], "image"))
        metadata = np.flatnonzero(pc.equal(rows["modality"], "metadata"))
        samples = rows["sample_id"].combine_chunks().dictionary_encode().indices.to_numpy()
        document = np.full(rows.num_rows, -1, np.int64)
        document[samples[metadata]] = metadata
        # by column, the row that has the value of each image; -1 if no row has one
        self._places = [
            np.where(np.asarray(column.is_valid(), dtype=bool)[images], images, document[samples[images]])
            for column in self._rows.columns
        ]
        self._images = len(images)

    def part(self, part: slice) -> pa.Table:
        """Return the fields of some of the images."""
        columns = [
            column.take(pa.array(places[part], mask=places[part] < 0))
            for column, places in zip(self._rows.columns, self._places, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def sizes(self) -> NDArray[np.int64]:
        """Return the bytes of the fields of each image."""
        sizes = np.zeros(self._images, np.int64)
        for column, places in zip(self._rows.columns, self._places, strict=True):
            chunks = [np.broadcast_to(value_bytes(chunk), len(chunk)) for chunk in column.chunks]
            # the last element is for place -1; sizes of views may sum to more than an integer holds
            of_rows = np.minimum(np.concatenate([*chunks, [0]]), 2**40).astype(np.int64)
            sizes += of_rows[places]
        return sizes


def text_parts(
    images: pa.Table, fields: DocumentFields | None = None, most_bytes: int = PART_TEXT_BYTES
) -> Iterator[slice]:
    """Yield consecutive parts of ``images``: one image, or at most ``most_bytes`` of texts and fields."""
    sizes = _text_bytes(images["text_before"]) + _text_bytes(images["text_after"])
    return parts_within(sizes if fields is None else sizes + fields.sizes(), most_bytes)


def _text_bytes(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the bytes of each cell of a column of texts, 0 for null."""
    parts = [np.zeros(0, np.int64)]
    for chunk in column.chunks:
        lengths = pc.binary_length(chunk.dictionary).take(chunk.indices)
        parts.append(lengths.fill_null(0).to_numpy(zero_copy_only=False))
    return np.concatenate(parts)


def _nearest_texts(rows: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each row the rows with the text before and after it in its sample, -1 without one."""
    count = rows.num_rows
    samples = rows["sample_id"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    ranks = np.array([_RANK.get(name, 2) for name in rows["modality"].to_pylist()], np.int64)
    order = np.lexsort((ranks, rows["position"].to_numpy(), samples))
    has_text = pc.and_(pc.equal(rows["modality"], "text"), rows["text_content"].is_valid())
    is_text = np.asarray(has_text, dtype=bool)[order]
    # places in that order; count stands for no text after, -1 for no text before
    places = np.arange(count)
    before = np.maximum.accumulate(np.where(is_text, places, -1))
    after = np.minimum.accumulate(np.where(is_text, places, count)[::-1])[::-1]
    return _rows_at(before, order, samples), _rows_at(after, order, samples)


def _rows_at(nearest: NDArray[np.int64], order: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each row the row at place ``nearest`` of ``order``; -1 if it is of another sample or missing."""
    exists = (nearest >= 0) & (nearest < len(order))
    rows = order[np.where(exists, nearest, 0)] if len(order) else nearest
    found = np.full(len(order), -1, np.int64)
    found[order] = np.where(exists & (samples[rows] == samples[order]), rows, -1)
    return found


def _original_path(source_ref: str | None) -> str | None:
    """Return a locator in readable form; a locator that cannot be parsed is returned unchanged."""
    try:
        ref = parse_source_ref(source_ref)
    except ValueError:
        return source_ref
    if ref.path is None:
        return ref.member
    member = "" if ref.member is None else f"/{ref.member}"
    frame = "" if ref.frame_index is None else f"#frame={ref.frame_index}"
    return f"{ref.path}{member}{frame}"
