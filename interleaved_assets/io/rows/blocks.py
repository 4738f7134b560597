"""Documents as ordered blocks of text, images and tables, and the one way from them to rows.

Readers of formats that have no rows of their own, such as web archives and PDF, give their documents in this form.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa

from interleaved_assets.io.rows import content_types
from interleaved_assets.io.rows.batches import binary_column
from interleaved_assets.model.columns import METADATA_POSITION, RESERVED_COLUMNS
from interleaved_assets.model.errors import row_error
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets.model.source_ref import is_unicode

IMAGE_URL: Final = "image_url"
"""Passthrough column of the address that a document gives for an image."""

_ROW_BYTES: Final = 100
"""Rough bytes of a row besides its text, its image, its id and its passthrough values."""
_STEP_BYTES: Final = 2**29
_Cells = dict[str, list[Any]]
"""The values of rows that are no table yet, by column."""
_TYPES: Final = {"text": content_types.TEXT, "image": None, "table": "text/markdown"}


class Block(NamedTuple):
    """A piece of a document: a text, an image or a table, with its position given by its place in the list.

    A page has hundreds; a named tuple is made in a third of the time that a frozen dataclass takes.

    Attributes:
        kind: the modality of its row.
        text: the content of a text or table; Unicode, else its row gets the error ``invalid_text``.
        content: the bytes of an image as they are stored; None if they could not be had, which ``error`` explains.
        content_type: MIME type; None means ``text/plain`` for a text, ``text/markdown`` for a table.
        url: the address of an image, for the column :data:`IMAGE_URL`.
        error: a text of :func:`.row_error`.
        fields: values of passthrough columns in its row.
        source_ref: locator of its bytes. None means that of the document for a text or table, and none for an image,
            whose bytes are not those of the document.
    """

    kind: Literal["text", "image", "table"]
    text: str | None = None
    content: bytes | None = None
    content_type: str | None = None
    url: str | None = None
    error: str | None = None
    fields: Mapping[str, Any] = {}
    source_ref: str | None = None


@dataclass(frozen=True, slots=True)
class BlockDocument:
    """A document: its metadata row, then a row for each block, at positions from 0.

    Attributes:
        sample_id: its id, Unicode; a repeated one is made unique by :func:`block_tables`.
        blocks: its content in reading order.
        fields: values of passthrough columns in its metadata row.
        error: the error of the document as a whole, for its metadata row.
        source_ref: locator of the document.
    """

    sample_id: str
    blocks: Sequence[Block] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    source_ref: str | None = None


def block_tables(
    documents: Iterable[BlockDocument],
    columns: pa.Schema,
    *,
    max_batch_bytes: int | None = None,
    notes: Counter[str] | None = None,
) -> Iterator[pa.Table]:
    """Yield tables of whole documents in their order; all have the schema that :func:`block_schema` returns.

    Without documents there is one table without rows.

    Args:
        documents: read one after another, so that a batch bounds the memory.
        columns: passthrough columns with their types. Values of other names are left out.
        max_batch_bytes: a table ends before the document that would exceed it; None gives one table.
        notes: counts the repeated ids as ``repeated_sample_ids``. A repeated id ``a`` becomes ``a~2``.
    """
    schema = block_schema(columns)
    limit = min(max_batch_bytes or _STEP_BYTES, _STEP_BYTES)
    taken: dict[str, int] = {}
    cells = _no_cells(schema)
    parts: list[pa.Table] = []
    filled, is_empty = 0, True
    for document in documents:
        is_empty = False
        sample_id = _unique(document.sample_id, taken)
        if notes is not None and sample_id != document.sample_id:
            notes["repeated_sample_ids"] += 1
        size = _document_bytes(document)
        if filled and filled + size > limit:
            table, cells, filled = _table(cells, schema), _no_cells(schema), 0
            if max_batch_bytes is None:
                parts.append(table)
            else:
                yield table
            del table
        _add(cells, sample_id, document)
        filled += size
    if filled:
        parts.append(_table(cells, schema))
        yield pa.concat_tables(parts)
    elif is_empty:
        yield schema.empty_table()


def block_schema(columns: pa.Schema) -> pa.Schema:
    """Return the reserved columns, then those of ``columns``.

    Raises:
        ValueError: a name in ``columns`` is reserved.
    """
    if taken := RESERVED_COLUMNS.intersection(columns.names):
        raise ValueError(f"reserved columns cannot pass through: {', '.join(sorted(taken))}")
    return pa.schema([*INTERLEAVED_SCHEMA, *columns])


def _unique(sample_id: str, taken: dict[str, int]) -> str:
    """Return ``sample_id``, with the lowest free number from 2 if it is taken, and add it to ``taken``.

    ``taken`` has the last number of each id: all documents of an archive may have one address.
    """
    unique, number = sample_id, taken.get(sample_id, 1)
    while unique in taken:
        number += 1
        unique = f"{sample_id}~{number}"
    taken[sample_id] = number
    taken.setdefault(unique, 1)
    return unique


def _document_bytes(document: BlockDocument) -> int:
    row = _ROW_BYTES + len(document.sample_id) + len(document.source_ref or "")
    size = row + sum(len(value) for value in document.fields.values() if isinstance(value, str))
    for block in document.blocks:
        size += row + len(block.text or "") + len(block.content or b"") + len(block.url or "") + len(block.error or "")
    return size


def _no_cells(schema: pa.Schema) -> _Cells:
    return {name: [] for name in schema.names}


def _add(cells: _Cells, sample_id: str, document: BlockDocument) -> None:
    """Append the rows of a document, column by column; the blocks themselves need not be kept until the table."""
    blocks = document.blocks
    texts, errors = [block.text for block in blocks], [block.error for block in blocks]
    for position, text in enumerate(texts):
        if text is not None and not is_unicode(text):
            texts[position] = text.encode("utf-8", "replace").decode()
            errors[position] = errors[position] or row_error(
                "invalid_text", f"block {position} is not Unicode; '?' replaces what is not"
            )
    cells["sample_id"] += [sample_id] * (1 + len(blocks))
    cells["position"] += (METADATA_POSITION, *range(len(blocks)))
    cells["modality"] += ("metadata", *[block.kind for block in blocks])
    cells["content_type"] += (content_types.JSON, *[block.content_type or _TYPES[block.kind] for block in blocks])
    cells["text_content"] += (None, *texts)
    cells["binary_content"] += (None, *[None if block.content is None else [block.content] for block in blocks])
    own = document.source_ref
    cells["source_ref"] += (own, *[block.source_ref or (None if block.kind == "image" else own) for block in blocks])
    cells["materialize_error"] += (document.error, *errors)
    for name, values in cells.items():
        if name == IMAGE_URL:
            of_blocks = [block.fields.get(name) if block.url is None else block.url for block in blocks]
            values += (document.fields.get(name), *of_blocks)
        elif name not in RESERVED_COLUMNS:
            values += (document.fields.get(name), *[block.fields.get(name) for block in blocks])


def _table(cells: _Cells, schema: pa.Schema) -> pa.Table:
    arrays = [
        binary_column(cells[column.name])
        if column.name == "binary_content"
        else pa.array(cells[column.name], column.type)
        for column in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
