"""The members of a tar for rows of the row model: for each sample a JSON, its images, and its other members."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from interleaved_assets.io.archive.index import MAX_NAME_BYTES, shortened
from interleaved_assets.io.rows import content_types
from interleaved_assets.io.rows.batches import binary_views
from interleaved_assets.io.storage.atomic import BytesLike
from interleaved_assets.io.storage.limits import LIMITS, TarLimits
from interleaved_assets.io.tar.documents import read_document
from interleaved_assets.io.tar.estimates import document_bytes, null_bytes
from interleaved_assets.io.tar.exact import LISTED, MODALITIES, Exact
from interleaved_assets.io.tar.layout import (
    EXACT_FIELD,
    LIST_LENGTH,
    UNREFERENCED_MEMBERS,
    ShardLayout,
    member_key,
    split_extension,
)
from interleaved_assets.io.tar.passthrough import ColumnTypes
from interleaved_assets.io.tar.plain_cells import LISTS, PlainColumn, PlainSample, place_nulls
from interleaved_assets.io.tar.samples import observe_document
from interleaved_assets.io.tar.tar_rows import UNREFERENCED_TYPE
from interleaved_assets.model.columns import RESERVED_COLUMNS
from interleaved_assets.model.errors import OptionError
from interleaved_assets.model.source_ref import is_unicode

_METADATA, _TEXT, _IMAGE = (MODALITIES[name] for name in ("metadata", *LISTED))
# The lists of texts and images have a null for each gap between positions, but not more nulls than this.
_MOST_GAPS: Final = 1000
_GAPS_PER_ROW: Final = 8
_KEPT_NAME: Final = re.compile(r"[\w-]+(\.[\w-]+)*", re.ASCII)


class Member(NamedTuple):
    """A file to write to the tar."""

    name: str
    content: BytesLike


class TarDocuments:
    """The samples of a table as members of a tar; iterating gives the members of one sample after the other.

    Args:
        table: rows of a valid batch, reserved columns in their types, of modalities that a tar can hold.
        states_schema: let the first document state the columns, if they do not follow from its fields.
        limits: those of the reader, which would not read a larger sample; iterating raises an
            :class:`~interleaved_assets.model.errors.OptionError` that names the sample.
    """

    def __init__(self, table: pa.Table, *, states_schema: bool, limits: TarLimits = LIMITS) -> None:
        self._limits, self._row_bytes = limits, null_bytes(table.schema)
        self._schema, self._states_schema = table.schema, states_schema
        order, self._samples = _canonical_order(table)
        self._contents: list[memoryview | None] = [None] * len(order)
        if "binary_content" in table.column_names:
            # views, since it would be costly to reorder the bytes of images
            views = binary_views(table["binary_content"])
            self._contents = [views[row] for row in order.tolist()]
            table = table.drop_columns(["binary_content"])
        if (np.diff(order) != 1).any():
            arrays = [column.combine_chunks().take(pa.array(order)) for column in table.columns]
            table = pa.Table.from_arrays(arrays, schema=table.schema)
        self._table = table
        self._ids: list[str] = self._table["sample_id"].to_pylist()
        self._positions: list[int] = self._table["position"].to_pylist()
        self._modalities = [MODALITIES[name] for name in self._table["modality"].to_pylist()]
        self._texts: list[str | None] = self._listed("text_content")
        self._types: list[str | None] = self._listed("content_type")
        modalities = np.array(self._modalities)
        self._columns = {
            name: PlainColumn(name, self._table[name], modalities != _METADATA)
            for name in self._table.column_names
            if name not in RESERVED_COLUMNS
        }
        # cells of reserved columns that have no place in a plain document
        is_empty = np.array([content is None for content in self._contents], dtype=bool)
        places = {
            "text_content": modalities != _TEXT,
            "source_ref": (modalities == _IMAGE) & is_empty,
            "materialize_error": np.ones(len(order), dtype=bool),
        }
        self._to_place = {
            name: np.asarray(self._table[name].is_valid(), dtype=bool) & where
            for name, where in places.items()
            if name in self._table.column_names
        } | {name: column.is_valid for name, column in self._columns.items()}
        # the number of cells per column and sample: of ten thousand columns, most samples have few
        starts = [start for start, _ in self._samples]
        self._counts: dict[int, dict[str, int]] = {start: {} for start in starts}
        for name, where in self._to_place.items():
            counts = np.add.reduceat(where, starts, dtype=np.int64)
            for number in np.flatnonzero(counts).tolist():
                self._counts[starts[number]][name] = int(counts[number])

    def __iter__(self) -> Iterator[list[Member]]:
        for start, stop in self._samples:
            yield self._members(range(start, stop))

    def _listed(self, name: str) -> list[Any]:
        return self._table[name].to_pylist() if name in self._table.column_names else [None] * self._table.num_rows

    def _members(self, rows: range) -> list[Member]:
        sample = self._plain_sample(rows)
        key = member_key(sample.sample_id)
        images = {row: f"{key}.{self._positions[row]}{self._extension(row)}" for row in sample.images}
        members = [Member(name, self._contents[row] or b"") for row, name in images.items()]
        extra, renamed = self._unreferenced(sample, key, images.values())
        for name in self._counts[rows.start]:
            if name in self._columns:
                self._columns[name].place(sample)
        place_nulls(sample, self._columns)
        lists, is_wide = self._lists(sample, rows, images)
        listed = {sample.metadata, *sample.texts, *sample.images}
        absent = [row for row in rows if row not in listed]  # text and image rows without an entry in the lists
        has_own_id = "sample_id" in sample.fields
        exact = Exact(
            rows=self._exact_rows(sample, rows, absent, is_needed=is_wide or bool(absent)),
            absent=frozenset(row - rows.start for row in absent),
            sample_id=sample.sample_id if has_own_id else None,
            per_image=tuple(sample.per_image) if sample.has_unexpected_lists else None,
            per_text=tuple(sample.per_text) if sample.has_unexpected_lists else None,
            members=renamed,
        )
        # fields are in the order of the columns, so the document's own field is not first
        body = lists | sample.fields if has_own_id else {"sample_id": sample.sample_id, **lists, **sample.fields}
        text = _json_bytes(body, exact)
        if self._states_schema and not self._shows_schema(text, key, has_extra=bool(extra)):
            text = _json_bytes(body, replace(exact, schema=self._schema.remove_metadata()))
        self._states_schema = False
        members = [Member(f"{key}.json", text), *members, *extra]
        self._check(sample.sample_id, len(rows), members)
        return members

    def _check(self, sample_id: str, rows: int, members: list[Member]) -> None:
        """Refuse a sample that the reader would not read back, by the sizes that the reader compares with limits."""
        (name, text), limits = members[0], self._limits
        contents = [len(member.content) for member in members[1:]]
        size = document_bytes(bytes(text), rows, len(name) + len(sample_id)) + rows * self._row_bytes
        size += sum(contents)
        longest = max(len(member.name.encode()) for member in members)
        for what, found, limit, option in (
            ("its longest member name", longest, MAX_NAME_BYTES, "the longest that is read"),
            ("its JSON", len(text), limits.max_document_bytes, "max_document_bytes"),
            ("its largest member", max([len(text), *contents]), limits.max_member_bytes, "max_member_bytes"),
            ("it", size, limits.max_sample_bytes, "max_sample_bytes"),
        ):
            if found > limit:
                raise OptionError(f"sample {shortened(sample_id)!r}: {what} takes {found} bytes, over {option} {limit}")

    def _plain_sample(self, rows: range) -> PlainSample:
        by_modality: dict[int, list[int]] = {code: [] for code in MODALITIES.values()}
        for row in rows:
            by_modality[self._modalities[row]].append(row)
        return PlainSample(
            self._ids[rows.start],
            metadata=next(iter(by_modality[_METADATA]), None),
            texts=[row for row in by_modality[_TEXT] if self._texts[row] is not None],
            images=[row for row in by_modality[_IMAGE] if self._contents[row] is not None],
        )

    def _lists(
        self, sample: PlainSample, rows: range, images: dict[int, str]
    ) -> tuple[dict[str, list[str | None]], bool]:
        """Return the parallel lists, and whether they do not show the positions, because the gaps are too wide."""
        listed = sorted([*sample.texts, *sample.images])
        # the last position of all rows, also of rows that are not listed
        length = self._positions[rows.stop - 1] + 1
        is_wide = length > _MOST_GAPS + _GAPS_PER_ROW * len(rows)
        if is_wide:
            length = len(listed)
        elif LIST_LENGTH in self._columns and sample.metadata is not None:
            stated = self._columns[LIST_LENGTH].values[sample.metadata]
            if type(stated) is int and length < stated <= length + _MOST_GAPS:
                length = stated
                sample.placed[LIST_LENGTH] = [sample.metadata]
        places = {row: place if is_wide else self._positions[row] for place, row in enumerate(listed)}
        texts: list[str | None] = [None] * length
        tokens: list[str | None] = [None] * length
        for row in sample.texts:
            texts[places[row]] = self._texts[row]
        for row in sample.images:
            tokens[places[row]] = images[row]
        return dict(zip(LISTS, (texts, tokens), strict=True)), is_wide

    def _extension(self, row: int) -> str:
        """Return the extension for the image in ``row``: its content type's, or that of its first bytes."""
        known = content_types.extension_of(self._types[row])
        return known or content_types.extension_of(content_types.sniff(self._head(row))) or ".bin"

    def _head(self, row: int) -> bytes:
        content = self._contents[row]
        return b"" if content is None else bytes(content[: content_types.SNIFFED_BYTES])

    def _expected_types(self, rows: range, absent: set[int]) -> list[str | None]:
        """Return the content types that a reader would find for ``rows``."""
        expected: list[str | None] = []
        for row in rows:
            if self._modalities[row] == _METADATA:
                expected.append(content_types.JSON)
            elif row in absent:
                expected.append(None)
            elif self._modalities[row] == _TEXT:
                expected.append(content_types.TEXT)
            else:
                known = content_types.type_of(self._extension(row))
                expected.append(known or content_types.sniff(self._head(row)))
        return expected

    def _unreferenced(
        self, sample: PlainSample, key: str, images: Iterable[str]
    ) -> tuple[list[Member], dict[str, str]]:
        """Return the members that no document names, from their column, and the original names of the renamed ones.

        No two names are equal in lower case, since webdataset lower-cases the part after the key and refuses repeats.
        """
        taken = {name.lower() for name in images}
        members: list[Member] = []
        renamed: dict[str, str] = {}
        at = sample.metadata
        if at is None or self._schema.get_field_index(UNREFERENCED_MEMBERS) < 0:
            return members, renamed
        found = self._table[UNREFERENCED_MEMBERS][at]
        if found.type != UNREFERENCED_TYPE or not found.is_valid:
            return members, renamed
        items = found.values
        names, contents = items.field("name").to_pylist(), items.field("content")
        if items.null_count or None in names or contents.null_count:
            return members, renamed
        number = 0
        for own, content in zip(names, contents, strict=True):
            name = own
            if name.lower() in taken or not _is_kept_name(name, key):
                # continue from the last number, since very many names may be taken
                number = max(number, len(members))
                while (name := _new_name(own, key, number)).lower() in taken:
                    number += 1
                renamed[name] = own
            taken.add(name.lower())
            members.append(Member(name, memoryview(content.as_buffer())))
        if members:
            sample.placed[UNREFERENCED_MEMBERS] = [at]
        return members, renamed

    def _exact_rows(self, sample: PlainSample, rows: range, absent: list[int], *, is_needed: bool) -> pa.Table | None:
        """Return the cells of ``rows`` that are nowhere else; None without such cells if the lists show the rows."""
        wanted: dict[str, np.ndarray] = {}
        for name, count in self._counts[rows.start].items():
            placed = sample.placed.get(name, ())
            if count != len(placed):
                wanted[name] = self._to_place[name][rows.start : rows.stop].copy()
                wanted[name][[row - rows.start for row in placed]] = False
        types = self._types[rows.start : rows.stop]
        # column_names would build the names of all columns anew for each sample
        has_types = self._schema.get_field_index("content_type") >= 0
        if has_types and types != self._expected_types(rows, set(absent)):
            wanted["content_type"] = np.ones(len(rows), dtype=bool)
        listed = set(sample.images)
        contents = [None if row in listed else self._contents[row] for row in rows]
        has_contents = any(content is not None for content in contents)
        if sample.metadata is not None and not (is_needed or wanted or has_contents):
            return None
        part = {name: self._table[name].slice(rows.start, len(rows)) for name in ("position", "modality", *wanted)}
        columns = {name: part[name].combine_chunks() for name in ("position", "modality")}
        for name, where in wanted.items():
            columns[name] = part[name].combine_chunks().take(pa.array(np.arange(len(rows)), mask=~where))
        if has_contents:
            columns["binary_content"] = pa.array(contents, pa.large_binary())
        return pa.table(columns)

    def _shows_schema(self, text: bytes, key: str, *, has_extra: bool) -> bool:
        """Return whether a reader that knows only the document ``text`` makes the columns of the table."""
        columns = ColumnTypes()
        observe_document(columns, read_document(text, ShardLayout(), key, self._limits))
        if has_extra:
            columns.state_schema(pa.schema([(UNREFERENCED_MEMBERS, UNREFERENCED_TYPE)]), ordered=False)
        own = set(self._schema.names)
        found = [column for column in columns.schema() if column.name in own]
        # types are compared without nullability, which is not part of them
        return [(column.name, column.type) for column in found] == [(own.name, own.type) for own in self._schema]


def _canonical_order(table: pa.Table) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Return row numbers of ``table``, and the first row and the end of each sample in that order.

    Samples are in the order of their first rows. Their metadata rows come first, then the other rows by position, texts
    before images.
    """
    samples = table["sample_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    modalities = np.array([MODALITIES[name] for name in table["modality"].to_pylist()], np.int8)
    order = np.lexsort((modalities, table["position"].to_numpy(), samples))
    borders = np.flatnonzero(np.diff(samples[order])) + 1
    return order, list(zip([0, *borders.tolist()], [*borders.tolist(), len(order)], strict=True))


def _is_kept_name(name: str, key: str) -> bool:
    """Return whether a reader puts a member of that ``name`` into the sample of ``key`` again, under that name.

    Names that webdataset reserves do not count: it skips files named ``__…__``, and has fields such as ``__key__``.
    """
    rest = name.removeprefix(f"{key}.")
    is_document = split_extension(name)[1].lower() in ShardLayout().json_extensions
    is_reserved = rest.startswith("__") or rest.endswith("__")
    return rest != name and _KEPT_NAME.fullmatch(rest) is not None and not is_document and not is_reserved


def _new_name(name: str, key: str, number: int) -> str:
    """Return a name for a member of the sample of ``key``; ``.extra`` distinguishes it from its images."""
    extension = ".tiff" if "#frame=" in name else split_extension(name)[1]
    found = f"{key}.extra{number}{extension}"
    return found if extension and _is_kept_name(found, key) else f"{key}.extra{number}.bin"


def _json_bytes(body: dict[str, Any], exact: Exact) -> bytes:
    said = exact.to_json()
    document = body if said is None else {**body, EXACT_FIELD: said}
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    return (text if is_unicode(text) else json.dumps(document, allow_nan=False)).encode()
