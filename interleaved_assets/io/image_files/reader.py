"""Reader of image files: those with the same name up to the ending are one document, with the text and JSON beside."""

import codecs
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from interleaved_assets.io.rows.blocks import Block, BlockDocument, block_tables
from interleaved_assets.io.rows.content_types import IMAGE_EXTENSIONS, seems_utf16, type_of
from interleaved_assets.io.storage import exists, locator_path, open_input
from interleaved_assets.io.tar.documents import Document, read_document
from interleaved_assets.io.tar.json_columns import cell_of
from interleaved_assets.io.tar.layout import ID_COLUMN, TEXT_EXTENSION, split_extension
from interleaved_assets.io.tar.passthrough import ColumnTypes
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.io.tar.samples import observe_document
from interleaved_assets.model.columns import RESERVED_COLUMNS
from interleaved_assets.model.errors import row_error
from interleaved_assets.model.source_ref import build_source_ref

JSON_EXTENSION: Final = ".json"
_AT_ONCE: Final = 256
"""Documents whose images are fetched together."""


def read_image_file(uri: str, options: ReadOptions) -> Iterator[pa.Table]:
    """Yield the tables of one image, with the text and JSON beside it that exist; see :func:`read_image_files`."""
    beside = (split_extension(uri)[0] + ending for ending in (TEXT_EXTENSION, JSON_EXTENSION))
    return read_image_files([uri, *(one for one in beside if exists(one, options.storage_options))], options)


def read_image_files(uris: Sequence[str], options: ReadOptions) -> Iterator[pa.Table]:
    """Yield tables of whole documents; all have the same schema.

    Files whose names differ in the ending alone are a document: its images, then its text (``.txt``). The fields of its
    ``.json`` become columns. Its ``sample_id`` is the name without the ending. Documents are in the order of their
    names.

    Args:
        uris: images, and the files beside them, all in one folder.
        options: the limits, the options of the storage, and ``layout.fields``.

    Raises:
        StorageError: a file is missing or unreadable.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for uri in sorted(uris):
        groups[split_extension(uri)[0]].append(uri)
    types = ColumnTypes(options.layout.fields)
    for files in groups.values():
        if (document := _json(files, options)) is not None:
            observe_document(types, document)
    columns = pa.schema([one for one in types.schema() if one.name not in RESERVED_COLUMNS and one.name != ID_COLUMN])
    stems = list(groups)
    for first in range(0, len(stems), _AT_ONCE):
        some = (_document(stem, groups[stem], columns, options) for stem in stems[first : first + _AT_ONCE])
        for table in block_tables(some, columns, max_batch_bytes=options.max_batch_bytes, notes=options.notes):
            yield from options.filled(table, uris[0]) if options.materialize else [table]


def _document(stem: str, files: Sequence[str], columns: pa.Schema, options: ReadOptions) -> BlockDocument:
    blocks = [
        Block("image", content_type=type_of(_extension(uri)), source_ref=_locator(uri))
        for uri in files
        if _extension(uri) in IMAGE_EXTENSIONS
    ]
    for uri in files:
        if _extension(uri) == TEXT_EXTENSION:
            blocks.append(_caption(uri, options))
    document = _json(files, options) or Document()
    known = {name: value for name, value in document.fields.items() if name in columns.names}
    fields = {name: cell_of(value, columns.field(name).type) for name, value in known.items()}
    return BlockDocument(stem.rpartition("/")[2], blocks, fields, document.error, _locator(files[0]))


def _caption(uri: str, options: ReadOptions) -> Block:
    content, most = _content(uri, options).removeprefix(codecs.BOM_UTF8), options.limits.max_document_bytes
    if len(content) > most:
        too_large = row_error("document_too_large", f"{uri} has more than max_document_bytes {most}")
        return Block("text", error=too_large, source_ref=_locator(uri))
    text = content.decode("utf-8", "replace")
    error = None
    if text.encode() != content:
        error = row_error("invalid_text", f"{uri} is not UTF-8")
    elif seems_utf16(content):
        error = row_error("invalid_text", f"{uri} seems to be UTF-16 or UTF-32: store it as UTF-8")
    return Block("text", text, error=error, source_ref=_locator(uri))


def _json(files: Sequence[str], options: ReadOptions) -> Document | None:
    for uri in files:
        if _extension(uri) == JSON_EXTENSION:
            return read_document(_content(uri, options), replace(options.layout, layout="images"), "", options.limits)
    return None


def _content(uri: str, options: ReadOptions) -> bytes:
    """Return the content of a file, or more than ``max_document_bytes`` of it if it is longer."""
    with open_input(uri, options.storage_options) as file:
        return file.read(options.limits.max_document_bytes + len(codecs.BOM_UTF8) + 1)


def _extension(uri: str) -> str:
    return split_extension(uri)[1].lower()


def _locator(uri: str) -> str:
    return build_source_ref(locator_path(uri))
