"""The rows of a tar's samples as Arrow columns, built straight from the bytes of its members."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io import content_types
from interleaved_assets.io.atomic import BytesLike
from interleaved_assets.io.batches import binary_column
from interleaved_assets.io.documents import Document
from interleaved_assets.io.exact import MODALITIES, Exact
from interleaved_assets.io.json_columns import is_unicode, json_text
from interleaved_assets.io.layout import ID_COLUMN, UNREFERENCED_MEMBERS, split_extension
from interleaved_assets.io.passthrough import ColumnCells
from interleaved_assets.io.references import ImageRef
from interleaved_assets.io.samples import Sample
from interleaved_assets.io.tar import TarMember
from interleaved_assets.io.tar_source import TarSource
from interleaved_assets.io.tiff import TiffFrame, frame_pieces, tiff_frames
from interleaved_assets.model.errors import row_error
from interleaved_assets.model.schema import METADATA_POSITION, RESERVED_COLUMNS
from interleaved_assets.model.source_ref import source_ref_array

UNREFERENCED_TYPE: Final = pa.list_(pa.struct([("name", pa.string()), ("content", pa.large_binary())]))
"""Type of the column ``_unreferenced_members``."""

_METADATA, _TEXT, _IMAGE = MODALITIES.values()
_MODALITY_NAMES: Final = pa.array(list(MODALITIES), pa.string())


class _Row(NamedTuple):
    position: int
    modality: int
    content_type: str | None = None
    text: str | None = None
    content: Sequence[BytesLike] | None = None
    error: str | None = None
    name: str | None = None  # of the member that the locator names
    member: TarMember | None = None
    frame: int | None = None
    source_ref: str | None = None  # to somewhere else


class TarRows:
    """Rows of some samples of a tar, collected one sample after the other.

    Args:
        source: the tar.
        path: how locators name it.
        schema: columns to make.
        with_bytes: put the bytes of images into the rows; else only their locators.
    """

    def __init__(self, source: TarSource, path: str, schema: pa.Schema, *, with_bytes: bool) -> None:
        self._source, self._path, self._schema, self._with_bytes = source, path, schema, with_bytes
        self._rows: list[_Row] = []
        self._ids: list[str] = []
        self._rows_of: list[int] = []
        self._cells: defaultdict[str, ColumnCells] = defaultdict(ColumnCells)
        self._frames: dict[TarMember, list[TiffFrame]] = {}

    def add(self, sample: Sample, document: Document) -> None:
        """Append the rows of ``sample``, whose JSON says ``document``."""
        exact = document.exact
        self._frames.clear()
        if exact is None or exact.rows is None:
            rows = list(self._plain_rows(sample, document))
        else:
            rows = list(self._exact_rows(sample, document, exact.rows, exact.absent))
            if sample.error is not None and all(row.error is None for row in rows):
                # there may be no metadata row to put it on
                rows[0] = rows[0]._replace(error=sample.error)
        self._add_cells(sample, document, rows, len(self._rows))
        self._ids.append(sample.sample_id)
        self._rows_of.append(len(rows))
        self._rows += rows

    @property
    def points_elsewhere(self) -> bool:
        """Whether a locator among the rows is not to this tar."""
        return any(row.source_ref is not None for row in self._rows)

    def table(self) -> pa.Table:
        """The rows added; there must be one."""
        listed: dict[str, list[Any]] = {
            name: list(values) for name, values in zip(_Row._fields, zip(*self._rows, strict=True), strict=True)
        }
        samples = np.repeat(np.arange(len(self._ids)), self._rows_of)
        reserved = {
            "sample_id": pa.array(self._ids, pa.string()).take(pa.array(samples)),
            "position": pa.array(listed["position"], pa.int32()),
            "modality": _MODALITY_NAMES.take(pa.array(listed["modality"])),
            "content_type": pa.array(listed["content_type"], pa.string()),
            "text_content": pa.array(listed["text"], pa.string()),
            "binary_content": binary_column(listed["content"]),
            "source_ref": self._source_refs(listed),
            "materialize_error": pa.array(listed["error"], pa.string()),
        }
        arrays = [
            reserved[column.name].cast(column.type)
            if column.name in reserved
            else self._cells[column.name].array(len(self._rows), column.type)
            for column in self._schema
        ]
        return pa.Table.from_arrays(arrays, schema=self._schema)

    def _plain_rows(self, sample: Sample, document: Document) -> Iterator[_Row]:
        yield self._metadata_row(sample)
        images = iter(sample.images)
        for position, (text, token) in enumerate(zip_longest(document.texts, document.images)):
            if text is not None:
                yield self._text_row(position, sample, text)
            if token is not None:
                yield self._image_row(position, next(images))

    def _exact_rows(
        self, sample: Sample, document: Document, cells: pa.Table, absent: frozenset[int]
    ) -> Iterator[_Row]:
        texts = (text for text in document.texts if text is not None)
        images = iter(sample.images)
        own = {name: cells[name].to_pylist() for name in RESERVED_COLUMNS if name in cells.column_names}
        for number, (position, name) in enumerate(zip(own["position"], own["modality"], strict=True)):
            modality = MODALITIES[name]
            if modality == _METADATA:
                row = self._metadata_row(sample)
            elif number in absent:
                row = _Row(position, modality, name=sample.json.name if sample.json and modality == _TEXT else None)
            elif modality == _TEXT:
                row = self._text_row(position, sample, next(texts))
            else:
                row = self._image_row(position, next(images))
            yield _with_cells(row, {column: values[number] for column, values in own.items()})

    def _metadata_row(self, sample: Sample) -> _Row:
        name = None if sample.json is None else sample.json.name
        return _Row(METADATA_POSITION, _METADATA, content_types.JSON, error=sample.error, name=name, member=sample.json)

    def _text_row(self, position: int, sample: Sample, text: Any) -> _Row:
        error = None
        if not isinstance(text, str):
            error = row_error("invalid_text", f"entry {position} is a {type(text).__name__} and not a string")
        elif not is_unicode(text):
            error = row_error("invalid_text", f"entry {position} is not Unicode")
        if error is not None:
            text = json_text(text)
        name = None if sample.json is None else sample.json.name
        return _Row(position, _TEXT, content_types.TEXT, text, error=error, name=name, member=sample.json)

    def _image_row(self, position: int, ref: ImageRef) -> _Row:
        row = _Row(position, _IMAGE, error=ref.error, name=ref.name, member=ref.member, frame=ref.frame)
        if ref.member is None:
            return row
        if ref.frame is None:
            content: Sequence[BytesLike] = [self._source.content(ref.member)] if self._with_bytes else []
            row = row._replace(content_type=self._content_type(ref.member))
        else:
            row = row._replace(content_type=content_types.TIFF)
            try:
                content = self._pieces(ref.member, ref.frame) if self._with_bytes else []
            except ValueError as error:
                detail = f"frame {ref.frame} of {ref.member.name}: {error}"
                return row._replace(error=row_error("invalid_tiff", detail))
        return row._replace(content=content) if self._with_bytes else row

    def _pieces(self, member: TarMember, frame: int) -> list[bytes | memoryview]:
        """The parts of a TIFF of that one frame of ``member``."""
        data = self._source.content(member)
        if member not in self._frames:
            self._frames[member] = tiff_frames(data)
        return frame_pieces(data, self._frames[member][frame])

    def _content_type(self, member: TarMember) -> str | None:
        known = content_types.type_of(split_extension(member.name)[1])
        if known is not None or not self._source.is_mapped:
            return known
        return content_types.sniff(bytes(self._source.range(member.offset, content_types.SNIFFED_BYTES)))

    def _add_cells(self, sample: Sample, document: Document, rows: list[_Row], first: int) -> None:
        """Put the passthrough values of ``sample``, whose ``rows`` begin at number ``first``."""
        numbers: dict[int, list[int]] = {_METADATA: [], _TEXT: [], _IMAGE: []}
        absent = document.exact.absent if document.exact is not None else frozenset()
        for number, row in enumerate(rows):
            if number not in absent:
                numbers[row.modality].append(first + number)
        for column, value in document.fields.items():
            if numbers[_METADATA] and not (column == ID_COLUMN and value == sample.sample_id):
                self._cells[column].add(numbers[_METADATA][0], value)
        for spread, modality in ((document.per_text, _TEXT), (document.per_image, _IMAGE)):
            for column, values in spread.items():
                for number, value in zip(numbers[modality], values, strict=True):
                    self._cells[column].add(number, value)
        if document.exact is not None and document.exact.rows is not None:
            cells = document.exact.rows
            for column in cells.column_names:
                if column not in RESERVED_COLUMNS:
                    self._cells[column].add_array(first, cells[column])
        if sample.leftovers and numbers[_METADATA] and UNREFERENCED_MEMBERS in self._schema.names:
            self._cells[UNREFERENCED_MEMBERS].add_array(
                numbers[_METADATA][0], pa.chunked_array([self._leftovers(sample, document.exact)])
            )

    def _leftovers(self, sample: Sample, exact: Exact | None) -> pa.Array:
        """One list of the members that go with ``sample``."""
        names = {} if exact is None else exact.members
        members = []
        for leftover in sample.leftovers:
            if leftover.frame is None:
                content = bytes(self._source.content(leftover.member))
            else:
                content = b"".join(self._pieces(leftover.member, leftover.frame))
            members.append({"name": names.get(leftover.name, leftover.name), "content": content})
        return pa.array([members], UNREFERENCED_TYPE)

    def _source_refs(self, listed: dict[str, list[Any]]) -> pa.Array:
        """Locators of all rows; without byte ranges where the tar is compressed."""
        members = listed["member"] if self._source.has_offsets else [None] * len(self._rows)
        own = source_ref_array(
            self._path,
            listed["name"],
            [None if member is None else member.offset for member in members],
            [None if member is None else member.size for member in members],
            listed["frame"],
        )
        return pc.coalesce(pa.array(listed["source_ref"], pa.string()), own)


def _with_cells(row: _Row, cells: dict[str, Any]) -> _Row:
    """``row`` with what stands nowhere else: ``cells`` of the reserved columns."""
    content = cells.get("binary_content")
    return row._replace(
        content_type=cells.get("content_type", row.content_type),
        text=cells.get("text_content") if row.text is None else row.text,
        content=[content] if row.content is None and content is not None else row.content,
        error=cells.get("materialize_error") if row.error is None else row.error,
        source_ref=cells.get("source_ref"),
    )
