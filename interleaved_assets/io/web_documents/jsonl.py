"""Reader of JSONL: a document a line, with its lists of texts and image URLs."""

import itertools
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pyarrow as pa

from interleaved_assets.io.rows.blocks import IMAGE_URL, BlockDocument, block_tables
from interleaved_assets.io.storage import locator_path
from interleaved_assets.io.tar.documents import Document, read_document, too_large_document
from interleaved_assets.io.tar.json_columns import cell_of
from interleaved_assets.io.tar.layout import ID_COLUMN
from interleaved_assets.io.tar.passthrough import ColumnTypes
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.io.tar.samples import observe_document
from interleaved_assets.io.web_documents.blocks import SIMILARITY, UrlLists, blocks_of, sample_id_of
from interleaved_assets.io.web_documents.image_store import find_images, store_shortfall, with_images
from interleaved_assets.io.web_documents.mmc4 import is_mmc4, mmc4_lists
from interleaved_assets.io.web_documents.settings import UrlSettings
from interleaved_assets.io.web_documents.unpacked import DamagedError, open_unpacked
from interleaved_assets.model.columns import RESERVED_COLUMNS
from interleaved_assets.model.source_ref import build_source_ref, is_unicode

logger = logging.getLogger(__name__)

_MMC4: Final = b'"text_list"'
_OWN: Final = (IMAGE_URL, SIMILARITY)


class _Line(NamedTuple):
    """A line of the file that is not blank; numbers from 1, offset and size in bytes of the unpacked file."""

    number: int
    offset: int
    size: int
    content: bytes | None
    """The line; None if it is longer than ``max_document_bytes``."""


def read_jsonl(uri: str, options: ReadOptions) -> Iterator[pa.Table]:
    """Yield tables of whole documents from a JSONL file, plain or packed; all have the same schema.

    A line with the lists ``texts`` and ``images`` of ``options.layout``, or with those of MMC4, is a document. Its
    ``sample_id`` is the field that the layout names, else its ``sample_id``, else its ``url``, else the number of the
    line. All other fields are passthrough columns. A line that is no JSON object has the error ``invalid_json``. The
    file is read twice: for the types of its columns, and for its rows.

    Raises:
        StorageError: the file or the store is missing or unreadable.
        ShardError: the store is none of img2dataset's.
        IncompleteShard: the file is cut or damaged, and ``options.accept_incomplete`` is False.
    """
    return read_jsonls([uri], options)


def read_jsonls(uris: Sequence[str], options: ReadOptions) -> Iterator[pa.Table]:
    """Yield tables of the documents of JSONL files of one folder as :func:`read_jsonl` does, all with one schema."""
    columns, urls, has_similarities = ColumnTypes(options.layout.fields), set[str](), False
    for uri in uris:
        for line in _checked_lines(uri, options):
            document, lists = _parsed(line, options)
            if excess := columns.excess_with(set(document.fields), (), options.limits.max_columns):
                document = too_large_document(f"with its fields the shard would have {excess}")
            observe_document(columns, document)
            if (stated := document.fields.get(ID_COLUMN)) is not None and stated != document.own_id:
                columns.observe(ID_COLUMN, [stated])
            urls.update(_urls(lists))
            has_similarities |= any(lists.similarities)
    store = (options.sections.get("urls") or UrlSettings()).image_store
    locators = {} if store is None else find_images(store, urls, options)
    own = [column for column in columns.schema() if column.name not in {*RESERVED_COLUMNS, *_OWN}]
    of_images = [(IMAGE_URL, pa.string()), *([(SIMILARITY, pa.float64())] if has_similarities else [])]
    types = pa.schema([*of_images, *own])
    of_files = (_documents(uri, options, types, locators, has_store=store is not None) for uri in uris)
    documents = itertools.chain.from_iterable(of_files)
    for table in block_tables(documents, types, max_batch_bytes=options.max_batch_bytes, notes=options.notes):
        yield from with_images(table, uris[0], options, store)


def jsonl_shortfall(uri: str, options: ReadOptions) -> str | None:
    """Return what shows that a compressed file, or a tar of its store, is cut or damaged; None if nothing does."""
    store = (options.sections.get("urls") or UrlSettings()).image_store
    urls = set[str]()
    lines = _Lines(uri, options)
    for line in lines:
        if store is not None:
            urls.update(_urls(_parsed(line, options)[1]))
    return lines.shortfall or store_shortfall(store, urls, options)


def _urls(lists: UrlLists) -> Iterator[str]:
    return (url for url in lists.images if isinstance(url, str) and is_unicode(url))


def _checked_lines(uri: str, options: ReadOptions) -> Iterator["_Line"]:
    """Yield the lines of a file; raise IncompleteShard at its end if it is cut, unless such files are accepted."""
    lines = _Lines(uri, options)
    yield from lines
    options.check_whole(uri, lines.shortfall, "lines")
    if lines.shortfall is not None:
        logger.warning("%s: it is cut or damaged: %s", uri, lines.shortfall)


def _documents(
    uri: str, options: ReadOptions, types: pa.Schema, locators: dict[str, str], *, has_store: bool
) -> Iterator[BlockDocument]:
    path = locator_path(uri)
    name = path.rpartition("/")[2]
    lines = _Lines(uri, options)
    for line in lines:
        document, lists = _parsed(line, options)
        known = {
            column: value
            for column, value in document.fields.items()
            if column in types.names and not (column == ID_COLUMN and value == document.own_id)
        }
        lists = lists._replace(per_text=_cells(document.per_text, types), per_image=_cells(document.per_image, types))
        place = (line.offset, line.size) if lines.has_offsets else (None, None)
        yield BlockDocument(
            document.own_id or sample_id_of(document.fields) or f"{name}:{line.number}",
            blocks_of(lists, locators, has_store=has_store),
            {column: cell_of(value, types.field(column).type) for column, value in known.items()},
            document.error,
            build_source_ref(path, None, *place),
        )


def _parsed(line: _Line, options: ReadOptions) -> tuple[Document, UrlLists]:
    """Return the document of a line, its lists apart."""
    if line.content is None:
        too_long = f"a line of more than max_document_bytes {options.limits.max_document_bytes}"
        return too_large_document(too_long), UrlLists((), ())
    content, lists = line.content, None
    if _MMC4 in content and (record := _object(content)) is not None and is_mmc4(record):
        lists = mmc4_lists(record)
        del record["text_list"]
        content = json.dumps(record).encode()
    layout = replace(
        options.layout,
        layout="interleaved",
        sample_id_field=options.layout.sample_id_field or "sample_id",
    )
    document = read_document(content, layout, "", options.limits)
    lists = lists or UrlLists(document.texts, document.images)
    # the columns of blocks are not those of the document
    for fields in (document.fields, document.per_text, document.per_image):
        for name in _OWN:
            if name in fields:
                fields[f"{name}_"] = fields.pop(name)
    return document, lists


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        return None  # read_document says what is wrong
    return record if isinstance(record, dict) else None


def _cells(columns: Mapping[str, list[Any]], types: pa.Schema) -> dict[str, list[Any]]:
    return {name: [cell_of(value, types.field(name).type) for value in values] for name, values in columns.items()}


class _Lines:
    """The lines of a file, one after another. No line above ``max_document_bytes`` is held in memory.

    Attributes:
        has_offsets: whether the offsets of lines are those in the file, which they are not if it is packed.
        shortfall: the reason why lines may be missing, once all are read; else None.
    """

    def __init__(self, uri: str, options: ReadOptions) -> None:
        self._uri, self._options = uri, options
        self.has_offsets = True
        self.shortfall: str | None = None

    def __iter__(self) -> Iterator[_Line]:
        most, offset, number = self._options.limits.max_document_bytes, 0, 0
        try:
            with open_unpacked(self._uri, self._options.storage_options) as (file, is_packed):
                self.has_offsets = not is_packed
                while line := file.readline(most + 1):
                    number += 1
                    size = len(line)
                    if size > most and not line.endswith(b"\n"):
                        while rest := file.readline(most + 1):
                            size += len(rest)
                            if rest.endswith(b"\n"):
                                break
                        yield _Line(number, offset, size, None)
                    elif line.strip():
                        yield _Line(number, offset, size, line)
                    offset += size
        except DamagedError as error:
            self.shortfall = f"line {number + 1} cannot be unpacked: {error}"
