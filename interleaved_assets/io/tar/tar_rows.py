"""The rows of a tar's samples as Arrow columns, built straight from the bytes of its members."""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

import numpy as np
import pyarrow as pa

from interleaved_assets.io.archive.index import TarMember, shortened
from interleaved_assets.io.archive.source import TarSource
from interleaved_assets.io.rows import content_types
from interleaved_assets.io.rows.batches import binary_column
from interleaved_assets.io.storage import locator_path
from interleaved_assets.io.storage.ranges import BlockReader, Content
from interleaved_assets.io.tar.documents import Document
from interleaved_assets.io.tar.exact import LISTED, MODALITIES
from interleaved_assets.io.tar.json_columns import json_text
from interleaved_assets.io.tar.layout import ID_COLUMN, UNREFERENCED_MEMBERS, split_extension
from interleaved_assets.io.tar.passthrough import ColumnCells
from interleaved_assets.io.tar.references import ImageRef
from interleaved_assets.io.tar.samples import Sample
from interleaved_assets.io.tiff.frames import TiffFrame, frame_pieces, tiff_frames
from interleaved_assets.model.columns import BINARY_SIZE, METADATA_POSITION, RESERVED_COLUMNS
from interleaved_assets.model.errors import row_error
from interleaved_assets.model.source_ref import is_unicode, source_ref_array

logger = logging.getLogger(__name__)

UNREFERENCED_TYPE: Final = pa.list_(pa.struct([("name", pa.string()), ("content", pa.large_binary())]))
"""Type of the column ``_unreferenced_members``."""

_METADATA, _TEXT, _IMAGE = (MODALITIES[name] for name in ("metadata", *LISTED))
_MODALITY_NAMES: Final = tuple(MODALITIES)
_CONTENT_TYPES: Final = (content_types.JSON, content_types.TEXT, *[None] * (len(MODALITIES) - 2))


class TarRows:
    """Rows of some samples of a tar, collected one sample after the other.

    Values that most rows have are kept in lists with an entry per row; values that few rows have, by row number.
    """

    def __init__(self, source: TarSource, schema: pa.Schema, *, with_bytes: bool, by_reference: bool = False) -> None:
        self._source, self._schema, self._with_bytes = source, schema, with_bytes
        self._by_reference = by_reference
        self._keeps_leftovers = schema.get_field_index(UNREFERENCED_MEMBERS) >= 0
        self._positions: list[int] = []
        self._modalities: list[int] = []
        self._texts: list[str | None] = []
        self._ids: list[str] = []
        self._documents: list[ImageRef] = []
        self._rows_of: list[int] = []
        self._types: dict[int, str | None] = {}
        self._contents: dict[int, Sequence[Content]] = {}
        self._in_members: set[int] = set()
        self._errors: dict[int, str] = {}
        self._places: dict[int, ImageRef] = {}
        self._other_refs: dict[int, str] = {}
        self._cells: defaultdict[str, ColumnCells] = defaultdict(ColumnCells)
        self._tiffs: dict[TarMember, BlockReader] = {}
        self._frames: dict[TarMember, list[TiffFrame]] = {}

    @property
    def points_elsewhere(self) -> bool:
        """True if any locator of the rows points outside of this tar."""
        return bool(self._other_refs)

    def add(self, sample: Sample, document: Document) -> None:
        """Append the rows of ``sample`` from its ``document``."""
        first = len(self._positions)
        self._tiffs.clear()
        self._frames.clear()
        if document.exact is None or document.exact.rows is None:
            self._add_plain_rows(sample, document)
        else:
            self._add_exact_rows(sample, document, document.exact.rows, document.exact.absent)
        if sample.error is not None:
            # the error goes to the metadata row, which is first if the sample has one
            self._errors[first] = sample.error
        self._ids.append(sample.sample_id)
        self._documents.append(ImageRef(None) if sample.json is None else ImageRef(sample.json.name, sample.json))
        self._rows_of.append(len(self._positions) - first)
        self._add_cells(sample, document, first)

    def table(self) -> pa.Table:
        """Return the rows added.

        By reference, rows of images have their locators and sizes, and no bytes. If a locator is not to this tar, all
        images are copied.
        """
        count = len(self._positions)
        modalities = pa.array(self._modalities, pa.int8())
        is_referenced = self._by_reference and not self.points_elsewhere
        contents: list[Sequence[Content] | None] = [None] * count
        sizes: list[int | None] = [None] * count
        for row, content in self._contents.items():
            if is_referenced and row in self._in_members:
                sizes[row] = sum(map(len, content))
            else:
                contents[row] = content
        samples = pa.array(np.repeat(np.arange(len(self._ids)), self._rows_of))
        reserved = {
            "sample_id": pa.array(self._ids, pa.string()).take(samples),
            "position": pa.array(self._positions, pa.int32()),
            "modality": _strings(_MODALITY_NAMES).take(modalities),
            "content_type": _overlaid(_strings(_CONTENT_TYPES).take(modalities), self._types),
            "text_content": pa.array(self._texts, pa.string()),
            "binary_content": binary_column(contents),
            "source_ref": _overlaid(self._own_refs(samples), self._other_refs),
            "materialize_error": _overlaid(pa.nulls(count, pa.string()), self._errors),
        }
        if self._by_reference:
            reserved[BINARY_SIZE] = pa.array(sizes, pa.uint64())
        # of ten thousand columns most are null in most batches, so null columns of one type share one array
        nulls = {dtype: pa.nulls(count, dtype) for dtype in set(self._schema.types)}
        arrays = []
        for column in self._schema:
            if column.name in reserved:
                arrays.append(reserved[column.name].cast(column.type))
            elif column.name in self._cells:
                arrays.append(self._cells[column.name].array(count, column.type))
            else:
                arrays.append(nulls[column.type])
        return pa.Table.from_arrays(arrays, schema=self._schema)

    def _own_refs(self, samples: pa.Array) -> pa.Array:
        """Return locators into this tar, without byte ranges if it is compressed; ``samples`` has each row's sample."""

        def column(values: Callable[[ImageRef], int | str | None], dtype: pa.DataType) -> pa.Array:
            of_documents = pa.array([values(place) for place in self._documents], dtype)
            return _overlaid(of_documents.take(samples), {row: values(place) for row, place in self._places.items()})

        has_offsets = self._source.has_offsets
        return source_ref_array(
            locator_path(self._source.uri),
            column(lambda place: place.name, pa.string()),
            column(lambda place: place.member.offset if place.member and has_offsets else None, pa.int64()),
            column(lambda place: place.member.size if place.member and has_offsets else None, pa.int64()),
            column(lambda place: place.frame, pa.int64()),
        )

    def _add_row(self, position: int, modality: int, text: str | None = None) -> int:
        self._positions.append(position)
        self._modalities.append(modality)
        self._texts.append(text)
        return len(self._positions) - 1

    def _add_plain_rows(self, sample: Sample, document: Document) -> None:
        self._add_row(METADATA_POSITION, _METADATA)
        images, texts = iter(sample.images), iter(sample.texts)
        for position, (text, token) in enumerate(zip_longest(document.texts, document.images)):
            if text is not None:
                row = self._add_text(position, text)
                if (member := next(texts, None)) is not None:
                    self._places[row] = ImageRef(member.name, member)
            if token is not None:
                self._add_image(position, next(images))

    def _add_exact_rows(self, sample: Sample, document: Document, cells: pa.Table, absent: frozenset[int]) -> None:
        texts = (text for text in document.texts if text is not None)
        images = iter(sample.images)
        own = {name: cells[name].to_pylist() for name in RESERVED_COLUMNS if name in cells.column_names}
        for number, (position, name) in enumerate(zip(own["position"], own["modality"], strict=True)):
            modality = MODALITIES[name]
            if modality == _METADATA or number in absent:
                row = self._add_row(position, modality)
                if modality != _METADATA:
                    self._types[row] = None
                if modality == _IMAGE:
                    self._places[row] = ImageRef(None)
            elif modality == _TEXT:
                row = self._add_text(position, next(texts))
            else:
                row = self._add_image(position, next(images))
            self._complete(row, {column: values[number] for column, values in own.items()})

    def _complete(self, row: int, cells: dict[str, Any]) -> None:
        """Put the ``cells`` of reserved columns that are nowhere else into ``row``."""
        if "content_type" in cells:
            self._types[row] = cells["content_type"]
        if self._texts[row] is None:
            self._texts[row] = cells.get("text_content")
        if (content := cells.get("binary_content")) is not None:
            self._contents.setdefault(row, [content])
        if (error := cells.get("materialize_error")) is not None:
            self._errors.setdefault(row, error)
        if (source_ref := cells.get("source_ref")) is not None:
            self._other_refs[row] = source_ref

    def _add_text(self, position: int, text: Any) -> int:
        if isinstance(text, str) and is_unicode(text):
            return self._add_row(position, _TEXT, text)
        what = "not Unicode" if isinstance(text, str) else f"a {type(text).__name__} and not a string"
        if isinstance(text, bytes):  # of a member; JSON has none
            text, what = text.decode("utf-8", "surrogateescape"), "no UTF-8 text: it seems to be UTF-16 or UTF-32"
        row = self._add_row(position, _TEXT, json_text(text))
        self._errors[row] = row_error("invalid_text", f"entry {position} is {what}")
        return row

    def _add_image(self, position: int, ref: ImageRef) -> int:
        row = self._add_row(position, _IMAGE)
        self._places[row] = ref
        if ref.error is not None:
            self._errors[row] = ref.error
        if ref.member is None:
            return row
        if ref.frame is None:
            self._types[row] = ref.content_type or self._content_type(ref.member)
        else:
            self._types[row] = content_types.TIFF
        if self._with_bytes:
            try:
                self._contents[row] = self._pieces(ref.member, ref.frame, ref.tiff)
                self._in_members.add(row)
            except ValueError as error:
                detail = f"frame {ref.frame} of {shortened(ref.member.name)}: {error}"
                self._errors[row] = row_error("invalid_tiff", detail)
        return row

    def _pieces(self, member: TarMember, frame: int | None, parsed: TiffFrame | None = None) -> Sequence[Content]:
        """Return the parts of ``member``, or of a TIFF with only that frame of it.

        ``parsed`` is the frame, if it is already parsed.
        """
        if frame is None:
            return [self._source.content(member)]
        if member not in self._tiffs:
            self._tiffs[member] = BlockReader(self._source.content(member))
        tiff = self._tiffs[member]
        if parsed is None:
            if member not in self._frames:
                self._frames[member] = tiff_frames(tiff)
            parsed = self._frames[member][frame]
        return frame_pieces(tiff, parsed)

    def _content_type(self, member: TarMember) -> str | None:
        known = content_types.type_of(split_extension(member.name)[1])
        if known is not None or not self._source.is_on_disk:
            return known
        return content_types.sniff(bytes(self._source.range(member.offset, content_types.SNIFFED_BYTES)))

    def _add_cells(self, sample: Sample, document: Document, first: int) -> None:
        """Put the passthrough values of ``sample``, whose rows begin at ``first``."""
        exact = document.exact
        rows: dict[int, list[int]] = {code: [] for code in MODALITIES.values()}
        for row, modality in enumerate(self._modalities[first:]):
            if exact is None or row not in exact.absent:
                rows[modality].append(first + row)
        for column, value in document.fields.items():
            if rows[_METADATA] and not (column == ID_COLUMN and value == sample.sample_id):
                self._cells[column].add(rows[_METADATA][0], value)
        for spread, modality in ((document.per_text, _TEXT), (document.per_image, _IMAGE)):
            for column, values in spread.items():
                for row, value in zip(rows[modality], values, strict=True):
                    self._cells[column].add(row, value)
        if exact is not None and exact.rows is not None:
            for column in exact.rows.column_names:
                if column not in RESERVED_COLUMNS:
                    self._cells[column].add_array(first, exact.rows[column])
        if sample.leftovers and rows[_METADATA] and self._keeps_leftovers:
            members = pa.chunked_array([self._leftovers(sample, {} if exact is None else exact.members)])
            self._cells[UNREFERENCED_MEMBERS].add_array(rows[_METADATA][0], members)

    def _leftovers(self, sample: Sample, names: Mapping[str, str]) -> pa.Array:
        """Return one list of the members that belong to ``sample``; ``names`` has the original names of some."""
        kept, contents, damaged = [], [], []
        for leftover in sample.leftovers:
            try:
                contents.append(self._pieces(leftover.member, leftover.frame))
                kept.append(names.get(leftover.name, leftover.name))
            except ValueError as error:
                damaged.append(f"{shortened(leftover.name)}: {error}")
        if damaged:
            what = f"{len(damaged)} frames that no document names cannot be cut out and are left out; the first is"
            logger.warning("%s: %s: %s %s", self._source.uri, shortened(sample.sample_id), what, damaged[0])
        columns = [pa.array(kept, pa.string()), binary_column(contents)]
        members = pa.StructArray.from_arrays(columns, fields=list(UNREFERENCED_TYPE.value_type))
        return pa.ListArray.from_arrays(pa.array([0, len(kept)], pa.int32()), members, type=UNREFERENCED_TYPE)


def _overlaid(base: pa.Array, cells: Mapping[int, Any]) -> pa.Array:
    """Return ``base`` with other values in some rows."""
    if not cells:
        return base
    indices = np.arange(len(base))
    indices[list(cells)] = len(base) + np.arange(len(cells))
    return pa.concat_arrays([base, pa.array(list(cells.values()), base.type)]).take(pa.array(indices))


def _strings(values: tuple[str | None, ...]) -> pa.Array:
    # not made on import: the first array that pyarrow makes of Python values imports pandas, which takes 0.3 s
    return pa.array(values, pa.string())
