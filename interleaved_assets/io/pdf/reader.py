"""Reader of PDF files: each file a document of its text in reading order, with embedded images in place."""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from interleaved_assets.io.pdf.model import PageModel
from interleaved_assets.io.pdf.parser import read_frames
from interleaved_assets.io.pdf.settings import PdfSettings
from interleaved_assets.io.rows.blocks import Block, BlockDocument, block_tables
from interleaved_assets.io.storage import as_storage_error, local_copy, locator_path
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.model.errors import ShardError, row_error
from interleaved_assets.model.source_ref import build_source_ref, is_unicode

_ABOUT: Final = ("title", "author", "creator", "producer", "creationdate")
_COLUMNS: Final = pa.schema(
    [
        ("pages", pa.int32()),
        ("pages_without_text", pa.list_(pa.int32())),
        ("page", pa.int32()),
        *((name, pa.string()) for name in _ABOUT),
    ]
)


def read_pdf(uri: str, options: ReadOptions) -> Iterator[pa.Table]:
    """Yield the rows of a PDF file: one document, whose ``sample_id`` is the name of the file.

    Each text and image has the column ``page``, from 1. The row of the document has ``pages``, its title and other
    metadata, and ``pages_without_text``: pages without a text layer, such as scans. Pages that cannot be parsed, or
    that end the parser, are ``unreadable_page`` errors of their own. A JPEG is copied as it is stored; other images,
    and those with a mask, are PNG. The file is parsed in a process of its own.

    Raises:
        StorageError: the file is missing or unreadable.
        ShardError: it is encrypted or no PDF, or its parser ended or exceeded a limit before the first page.
    """
    document = _document(uri, options)
    yield from block_tables([document], _COLUMNS, max_batch_bytes=options.max_batch_bytes, notes=options.notes)


def read_pdfs(uris: Sequence[str], options: ReadOptions) -> Iterator[pa.Table]:
    """Yield the rows of PDF files as :func:`read_pdf` does; one that cannot be read is a document with its error.

    Raises:
        StorageError: a file is missing or unreadable.
    """
    documents = (_document_or_error(uri, options) for uri in uris)
    yield from block_tables(documents, _COLUMNS, max_batch_bytes=options.max_batch_bytes, notes=options.notes)


def _document_or_error(uri: str, options: ReadOptions) -> BlockDocument:
    try:
        return _document(uri, options)
    except ShardError as error:
        path = locator_path(uri)
        refused = row_error("unreadable_source", str(error))
        return BlockDocument(Path(path).name, error=refused, source_ref=build_source_ref(path))


def _document(uri: str, options: ReadOptions) -> BlockDocument:
    settings = options.sections.get("pdf") or PdfSettings()
    path = locator_path(uri)
    blocks: list[Block] = []
    without_text: list[int] = []
    about: dict[str, Any] = {}
    error: str | None = None
    ended: str | None = None
    refused: str | None = None
    model = None if settings.model_url is None else PageModel(settings)
    pages = read = size = 0
    with local_copy(uri, options.storage_options) as copy, closing(read_frames(copy, settings)) as frames:
        for head, contents in frames:
            if "ended" in head:
                ended = head["ended"]
                break
            if "unreadable" in head:
                number = head["unreadable"]
                raise as_storage_error(OSError(number, os.strerror(number)), uri, "read")
            if "refused" in head:
                refused = head["refused"]
                continue
            if "pages" in head:
                pages, about = head["pages"], head["about"]
                continue
            read = head["page"]
            found = head["blocks"]
            if model is not None and "page_image" in head:
                found, contents = model.read(head, contents)
            size += sum(map(len, contents))
            if size > options.limits.max_sample_bytes:
                error = row_error("sample_too_large", f"page {read}: raise max_sample_bytes")
                break
            if "error" in head:
                problem = row_error("unreadable_page", f"page {read}: {head['error']}")
                blocks.append(Block("text", error=problem, fields={"page": read}))
            elif not head["has_text"]:
                without_text.append(read)
            blocks += [_block(block, contents, read, options) for block in found]
    if refused is not None:
        raise ShardError(f"{uri} cannot be read as PDF: {_reason(refused)}")
    if ended is not None and not pages:
        raise ShardError(f"{uri} cannot be read as PDF: its parser {ended}")
    if ended is not None:
        error = row_error("unreadable_page", f"page {read + 1} and those after it: the parser {ended}")
    elif error is None and pages > settings.max_pages:
        error = row_error("document_too_large", f"{pages} pages, over max_pages {settings.max_pages}")
    if without_text and options.notes is not None:
        options.notes["no_text_layer"] += len(without_text)
    fields = {name: str(about[name]) for name in _ABOUT if is_unicode(str(about.get(name, "\ud800")))}
    return BlockDocument(
        Path(path).name,
        blocks,
        {"pages": pages, "pages_without_text": without_text, **fields},
        error,
        build_source_ref(path),
    )


def _block(block: dict[str, Any], contents: list[bytes], page: int, options: ReadOptions) -> Block:
    fields = {"page": page}
    if "text" in block:
        return Block("text", block["text"], fields=fields)
    if "table" in block:
        is_html = block["table"].lstrip().startswith("<")
        return Block("table", block["table"], content_type="text/html" if is_html else None, fields=fields)
    if "image" not in block:
        return Block("text", error=block["error"], fields=fields)
    if block["image"] is None:
        return Block("image", error=block["error"], fields=fields)
    content = contents[block["image"]]
    if len(content) > options.limits.max_member_bytes:
        error = row_error("sample_too_large", f"an image of page {page}: raise max_member_bytes")
        return Block("image", error=error, fields=fields)
    return Block("image", content=content, content_type=block["type"], fields=fields)


def _reason(text: str) -> str:
    if "password" in text.lower() or "security scheme" in text.lower():
        return "it is encrypted. Remove its password, or take it out of the raw root"
    return f"{text.rstrip('.')}. It is damaged or no PDF: fetch or write it again"
