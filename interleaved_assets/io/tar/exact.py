"""The field ``_interleaved`` of a document, which holds everything of a sample that plain JSON cannot express.

A document written by this package is plain: lists of texts and image tokens, and a field per passthrough column. Only
if that would not give a row back exactly, the document has the field ``_interleaved``, an object with

    version     1
    rows        every row of the sample as an Arrow IPC stream in Base64: position, modality, and of the other columns
                the cells that are nowhere else; of content_type all cells, so that its nulls count, too
    absent      numbers of the rows, from 0, that have no entry in the lists of texts and images, as tables and audio
    schema      columns of the shard as an Arrow IPC schema in Base64; only in the first document of a tar, and only
                if that document's fields alone would give other columns
    sample_id   the sample's id, if the field ``sample_id`` holds another value
    per_image   fields that are lists with one entry per image token
    per_text    fields that are lists with one entry per text
    members     of members that no document names: the name in the tar, and the original name

Any Arrow implementation reads the Base64 parts; all plain types and values survive by construction.
"""

import base64
import binascii
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

import pyarrow as pa

from interleaved_assets.io.tar.estimates import MAX_NULL_BYTES, null_bytes
from interleaved_assets.io.tar.json_columns import MAX_FIELDS, struct_fields
from interleaved_assets.io.tar.layout import UNREFERENCED_MEMBERS
from interleaved_assets.model.casting import may_share
from interleaved_assets.model.columns import RESERVED_COLUMNS
from interleaved_assets.model.schema import reconcile_schema
from interleaved_assets.model.source_ref import is_unicode

VERSION: Final = 1

MODALITIES: Final = {"metadata": 0, "text": 1, "image": 2, "table": 3, "audio": 4}
"""The modalities that a tar can hold, numbered in the order of rows that share a position.

Plain JSON lists texts and images. Rows of the others are in ``_interleaved`` alone, so that any reader of MINT-1T's
form reads the rest.
"""
LISTED: Final = ("text", "image")
"""The modalities that the lists of a document hold."""


@dataclass(frozen=True)
class Exact:
    """The content of ``_interleaved``; the module describes its parts. An absent part is None or empty."""

    rows: pa.Table | None = None
    absent: frozenset[int] = frozenset()
    schema: pa.Schema | None = None
    sample_id: str | None = None
    per_image: tuple[str, ...] | None = None
    per_text: tuple[str, ...] | None = None
    members: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any] | None:
        """Return the JSON object; None if all parts are absent."""
        parts: dict[str, Any] = {
            "rows": None if self.rows is None else _to_base64(_stream(self.rows)),
            "absent": sorted(self.absent) or None,
            "schema": None if self.schema is None else _to_base64(self.schema.serialize()),
            "sample_id": self.sample_id,
            "per_image": None if self.per_image is None else list(self.per_image),
            "per_text": None if self.per_text is None else list(self.per_text),
            "members": dict(self.members) or None,
        }
        said = {name: part for name, part in parts.items() if part is not None}
        return {"version": VERSION, **said} if said else None


def is_exact(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether ``value`` of a field ``_interleaved`` is this package's, not a document's own."""
    return isinstance(value, dict) and type(value.get("version")) is int


def read_exact(value: dict[str, Any]) -> Exact:
    """Parse the parts of ``_interleaved``.

    Raises:
        ValueError: it is damaged, or written by a later version.
    """
    if value["version"] != VERSION:
        raise ValueError(f"_interleaved has version {value['version']}, and this release reads {VERSION}")
    rows, schema = _part(value, "rows", str), _part(value, "schema", str)
    absent, members = _part(value, "absent", list) or [], _part(value, "members", dict) or {}
    if any(type(row) is not int or row < 0 for row in absent):
        raise ValueError("_interleaved absent must be a list of row numbers")
    if any(type(name) is not str or not is_unicode(name) for name in members.values()):
        raise ValueError("_interleaved members must be an object of names")
    sample_id = _part(value, "sample_id", str)
    if sample_id is not None and not is_unicode(sample_id):
        raise ValueError("_interleaved sample_id is not Unicode")
    return Exact(
        rows=None if rows is None else _read_rows(rows, absent),
        absent=frozenset(absent),
        schema=None if schema is None else _read_schema(schema),
        sample_id=sample_id,
        per_image=_names(value, "per_image"),
        per_text=_names(value, "per_text"),
        members=members,
    )


def _part(value: dict[str, Any], name: str, kind: type) -> Any:
    found = value.get(name)
    if found is not None and type(found) is not kind:
        raise ValueError(f"_interleaved {name} must be a {kind.__name__}, got a {type(found).__name__}")
    return found


def _names(value: dict[str, Any], name: str) -> tuple[str, ...] | None:
    found = _part(value, name, list)
    if any(type(item) is not str for item in found or ()):
        raise ValueError(f"_interleaved {name} must be a list of names")
    return None if found is None else tuple(found)


def _read_rows(text: str, absent: list[int]) -> pa.Table:
    stream = _from_base64(text)
    try:
        _refuse_compressed(stream)
        with pa.ipc.open_stream(stream) as reader:
            check_columns(reader.schema)
            rows = reader.read_all()
        # the data are not trusted: no offset may point out of its buffers
        rows.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"_interleaved rows are no Arrow table: {error}") from error
    if not rows.num_rows:
        raise ValueError("_interleaved rows are empty")
    for name in ("position", "modality"):
        if name not in rows.column_names or rows[name].null_count:
            raise ValueError(f"_interleaved rows have no {name}, or nulls in it")
    if not set(rows["modality"].unique().to_pylist()) <= MODALITIES.keys():
        raise ValueError("_interleaved rows have a modality that tars have no place for")
    if any(row >= rows.num_rows for row in absent):
        raise ValueError("_interleaved absent names a row that is not there")
    without_entry = set(absent)
    listed = (name for row, name in enumerate(rows["modality"].to_pylist()) if row not in without_entry)
    if not {*listed} <= {"metadata", *LISTED}:
        raise ValueError("_interleaved absent lacks a row that no list can hold")
    return rows


def _refuse_compressed(stream: bytes) -> None:
    """Refuse a stream with compressed batches, because their unpacked size has no bound; this package writes none.

    Dictionaries are not unpacked: :func:`check_columns` refuses their columns, before any batch is read. A message's
    header is a FlatBuffers table, which ``MessageReader`` of Arrow has checked. A record batch is part 2 of it. Part 3
    of the batch is the compression.
    """
    for message in pa.ipc.MessageReader.open_stream(stream):
        if message.type != "record batch":
            continue
        header = memoryview(message.metadata).cast("B")
        (root,) = struct.unpack_from("<I", header)
        batch = _flatbuffers_part(header, root, 2)
        if batch is not None and _flatbuffers_part(header, batch, 3) is not None:
            raise ValueError("_interleaved rows are compressed, which this package never writes")


def _flatbuffers_part(data: memoryview, table: int, number: int) -> int | None:
    """Return the position of the table in part ``number``, from 0, of the one at ``table``; None if it is absent."""
    layout = table - struct.unpack_from("<i", data, table)[0]
    (size,) = struct.unpack_from("<H", data, layout)
    (offset,) = struct.unpack_from("<H", data, layout + 4 + 2 * number) if 4 + 2 * number < size else (0,)
    return table + offset + struct.unpack_from("<I", data, table + offset)[0] if offset else None


def check_columns(schema: pa.Schema) -> None:
    """Refuse a schema whose columns cannot become columns of a shard."""
    if odd := [column for column in schema if may_share(column.type)]:
        raise ValueError(
            f"_interleaved has column {odd[0].name!r} of type {odd[0].type}, which this package never writes"
        )
    if null_bytes(schema) > MAX_NULL_BYTES:
        raise ValueError(f"_interleaved has columns that take more than {MAX_NULL_BYTES} bytes in each row")
    if sum(struct_fields(column.type) for column in schema if column.name != UNREFERENCED_MEMBERS) > MAX_FIELDS:
        raise ValueError(f"_interleaved has more than {MAX_FIELDS} fields in structs")
    try:
        str(schema)
        for column in schema:
            pa.nulls(1, column.type)
    except (UnicodeDecodeError, pa.ArrowException, KeyError) as error:
        # pyarrow raises KeyError for a type that it has no class for
        raise ValueError(f"_interleaved has a column that cannot be read: {error}") from error
    if len(set(schema.names)) < len(schema):
        raise ValueError("_interleaved has two columns of one name")
    for column, expected in zip(schema, reconcile_schema(schema), strict=True):
        if column.name in RESERVED_COLUMNS and column.type != expected.type:
            raise ValueError(f"_interleaved has column {column.name} with type {column.type}")


def _read_schema(text: str) -> pa.Schema:
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(_from_base64(text)))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"_interleaved schema is no Arrow schema: {error}") from error
    check_columns(schema)
    return schema


def _stream(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _to_base64(data: pa.Buffer) -> str:
    return base64.b64encode(data).decode("ascii")


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"_interleaved is damaged: {error}") from error
