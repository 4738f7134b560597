"""Reader of web archives: each page a document of its main content, with the images that the archive has."""

import base64
import binascii
import logging
import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import IO, Final
from urllib.parse import unquote_to_bytes

import pyarrow as pa

from interleaved_assets.io.rows.blocks import IMAGE_URL, Block, BlockDocument, block_schema, block_tables
from interleaved_assets.io.rows.content_types import SNIFFED_BYTES, sniff
from interleaved_assets.io.rows.workers import Workers
from interleaved_assets.io.storage import StorageOptions, local_copy, locator_path, open_input, storage_errors
from interleaved_assets.io.storage.limits import TarLimits
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.io.warc.archive import ArchiveIndex, PageRecord, address, index_archive, read_body
from interleaved_assets.io.warc.html import decode_html, is_binary
from interleaved_assets.io.warc.main_content import PageContent
from interleaved_assets.io.warc.page import PageBlock
from interleaved_assets.io.warc.parser import PageTooHeavyError, parse_within_limits
from interleaved_assets.io.warc.settings import WarcSettings
from interleaved_assets.model.columns import BINARY_SIZE
from interleaved_assets.model.errors import row_error
from interleaved_assets.model.source_ref import build_source_ref

logger = logging.getLogger(__name__)

_OF_PAGES: Final = ("url", "title", "language", "fetched_at")
_OF_IMAGES: Final = (IMAGE_URL, "image_alt", "image_caption")
_BINARY: Final = "its content is no text, perhaps packed in another way than the server said"
_PARSERS: Final = 2
"""Parsers of an archive: they take twice the time of the rest of its reading."""
_LEAST_DATA: Final = 200
"""Characters below which a ``data:`` URL is no image to learn from: scripts put a larger one in its place."""


def warc_schema() -> pa.Schema:
    """Return the schema of the rows of every web archive."""
    return block_schema(_columns())


def read_warc(uri: str, options: ReadOptions) -> Iterator[pa.Table]:
    """Yield tables of whole documents from a web archive (WARC, plain or gzip), all with :func:`warc_schema`.

    Each successful HTML response is a document: its ``sample_id`` is its address. Images that the archive has, and
    ``data:`` URLs, have their bytes; the others have the error ``image_not_in_archive``. A last row of a document, with
    the error ``boilerplate``, says how much text of which parts of the page was left out. Both codes are in
    :data:`.NOT_IN_SOURCE`. The archive is read twice, the second time by offset. Nothing is downloaded.

    Args:
        uri: a path or a URL; a remote archive is copied to a temporary file.
        options: with ``by_reference``, images of the archive get :data:`.BINARY_SIZE` and a locator instead of their
            bytes. ``max_member_bytes`` bounds an image, ``max_sample_bytes`` the images of a page together. The section
            ``warc`` says what is taken of a page.

    Raises:
        StorageError: the archive is missing or unreadable.
        ShardError: it is not a web archive, has no readable record, or several of its records are in one gzip stream.
        IncompleteShard: records may be missing, and ``accept_incomplete`` is False.
    """
    notes = Counter[str]() if options.notes is None else options.notes
    settings = options.sections.get("warc") or WarcSettings()
    with local_copy(uri, options.storage_options) as path, storage_errors(uri, "read"):
        index = index_archive(path, uri)
        notes.update({kind: count for kind, count in index.notes.items() if count})
        options.check_whole(uri, index.shortfall, "pages")
        if index.shortfall is not None:
            logger.warning("%s: it is cut or damaged: %s", uri, index.shortfall)
        if not index.pages:
            logger.warning("%s: there is no page in it", uri)
        with path.open("rb") as file:
            place = locator_path(uri)
            reading = _Reading(file, index, place, options, settings, notes)
            columns = _columns()
            if options.by_reference:
                columns = columns.append(pa.field(BINARY_SIZE, pa.uint64()))
            yield from block_tables(reading.documents(), columns, max_batch_bytes=options.max_batch_bytes, notes=notes)


def fetch_bodies(
    uri: str, parts: Sequence[str], storage_options: StorageOptions, limits: TarLimits
) -> Iterator[tuple[str, bytes | str]]:
    """Yield the decoded bodies of records, or row errors; a part is the offset of a record, as text."""
    with open_input(uri, storage_options) as file:
        for part in sorted(parts):
            if not re.fullmatch(r"[0-9]{1,18}", part):  # a file has no larger offset
                yield part, row_error("invalid_source_ref", f"part {part[:40]!r} is no offset of a record in {uri}")
                continue
            _, content, wrong = read_body(file, int(part), limits.max_member_bytes + 1)
            if wrong is not None:
                yield part, row_error("unreadable_source", f"record at {part} of {uri}: {wrong}")
            elif len(content) > limits.max_member_bytes:
                too_large = f"record at {part} of {uri}: over max_member_bytes {limits.max_member_bytes}"
                yield part, row_error("member_too_large", too_large)
            else:
                yield part, content


def warc_shortfall(uri: str, options: ReadOptions) -> str | None:
    """Return what shows that an archive is cut or damaged, None if nothing does."""
    with local_copy(uri, options.storage_options) as path, storage_errors(uri, "read"):
        return index_archive(path, uri).shortfall


def _columns() -> pa.Schema:
    return pa.schema([(name, pa.string()) for name in (*_OF_PAGES, *_OF_IMAGES)])


@dataclass(slots=True)
class _Fetched:
    """A page before it is parsed: its bytes in UTF-8, empty if they cannot be, and the error of its document."""

    offset: int
    url: str
    html: bytes = b""
    error: str | None = None
    fetched_at: str | None = None


class _Reading:
    """The documents of an open archive."""

    def __init__(
        self,
        file: IO[bytes],
        index: ArchiveIndex,
        path: str,
        options: ReadOptions,
        settings: WarcSettings,
        notes: Counter[str],
    ) -> None:
        self._file, self._index, self._path, self._settings, self._notes = file, index, path, settings, notes
        self._limits, self._by_reference = options.limits, options.by_reference

    def documents(self) -> Iterator[BlockDocument]:
        """Yield the documents of the pages in their order; the pages that follow are parsed meanwhile."""
        only_main = self._settings.only_main_content
        ahead = deque[tuple[_Fetched, Future[PageContent]]]()
        with Workers(_PARSERS, "page") as workers:
            for place in self._index.pages:
                page = self._fetched(place)
                ahead.append((page, workers.submit(parse_within_limits, page.html, page.url, only_main)))
                if len(ahead) > _PARSERS:
                    yield self._document(*ahead.popleft())
            while ahead:
                yield self._document(*ahead.popleft())

    def _fetched(self, place: PageRecord) -> _Fetched:
        most = self._settings.max_page_bytes
        record, body, wrong = read_body(self._file, place.offset, most + 1)
        page = _Fetched(place.offset, "" if record is None else address(record))
        if place.is_cut:
            page.error = row_error("truncated_shard", "the archive has not all of this page")
        elif wrong is not None:
            page.error = row_error("undecodable_page", wrong)
        if len(body) > most:
            page.error = row_error("document_too_large", f"the page has more than max_page_bytes {most}")
        elif record is not None:
            page.html, is_guessed, has_replaced = decode_html(body, record.http_charset)
            seen = {"pages_of_guessed_charset": is_guessed, "pages_with_replaced_characters": has_replaced}
            if is_binary(page.html):
                page.error, page.html = page.error or row_error("undecodable_page", _BINARY), b""
            else:
                self._notes.update(kind for kind, is_so in seen.items() if is_so)
            page.fetched_at = record.headers.get("WARC-Date")
        return page

    def _document(self, page: _Fetched, parsing: Future[PageContent]) -> BlockDocument:
        error, blocks = page.error, list[Block]()
        fields: dict[str, str | None] = {"url": page.url, "fetched_at": page.fetched_at}
        try:
            content = parsing.result()
        except PageTooHeavyError as heavy:
            error = row_error("document_too_large", str(heavy))
        else:
            fields |= {"title": content.title, "language": content.language}
            blocks = self._blocks(content.blocks)
            if content.characters or content.images:
                removed = _removed(content.characters, content.images)
                blocks.append(Block("text", error=row_error("boilerplate", removed)))
        return BlockDocument(page.url, blocks, fields, error, build_source_ref(self._path, byte_offset=page.offset))

    def _blocks(self, blocks: list[PageBlock]) -> list[Block]:
        found = []
        filled = 0
        for block in blocks:
            if block.url is None:
                found.append(Block("text", block.text))
            elif (image := self._image(block, self._limits.max_sample_bytes - filled)) is not None:
                found.append(image)
                filled += len(image.content or b"") or image.fields.get(BINARY_SIZE, 0)
        return found

    def _image(self, block: PageBlock, room: int) -> Block | None:
        """Return the row of an image; None for a ``data:`` URL that fills space until scripts replace it."""
        url = block.url or ""
        fields = {"image_alt": block.alt, "image_caption": block.caption}
        content: bytes | None
        if url[:5].lower() == "data:":
            if len(url) < _LEAST_DATA or url[:14].lower() == "data:image/svg":
                return None
            content, problem = _data_bytes(url), ""
            where, url = f"{url[:40]}…", ""
        else:
            where, (content, problem) = url, self._archived(url)
        error, kind = None, None if content is None else sniff(content[:SNIFFED_BYTES])
        if content is not None and kind is None:
            content, problem = None, "it is there, and no bitmap of a known format"
        if content is not None and len(content) > min(self._limits.max_member_bytes, room):
            error = row_error("sample_too_large", f"{where}: raise max_member_bytes or max_sample_bytes")
            content = None
        elif content is None:
            error = row_error("image_not_in_archive", f"{where}: {problem}" if problem else where)
        if self._by_reference and content is not None and url:
            of_archive = {**fields, BINARY_SIZE: len(content)}
            ref = build_source_ref(self._path, part=str(self._index.images[url]))
            return Block("image", None, None, kind, url, None, of_archive, ref)
        return Block("image", None, content, kind, url or None, error, fields)

    def _archived(self, url: str) -> tuple[bytes | None, str]:
        """Return the bytes that the archive has for ``url``, or None and what is wrong with its record, if any."""
        if (offset := self._index.images.get(url)) is None:
            return None, ""
        _, content, wrong = read_body(self._file, offset, self._limits.max_member_bytes + 1)
        return (None, f"its record is damaged: {wrong}") if wrong else (content, "")


def _data_bytes(url: str) -> bytes:
    """Return the bytes of a ``data:`` URL; none if its base64 is damaged."""
    head, _, body = url.partition(",")
    content = unquote_to_bytes(body)
    if not re.search(r"; *base64 *$", head, re.IGNORECASE):
        return content
    try:
        return base64.b64decode(content + b"=" * (-len(content) % 4))
    except binascii.Error:
        return b""


def _removed(characters: Counter[str], images: Counter[str]) -> str:
    """Return what was left out: numbers of characters and images, by the part of the page."""
    parts = ", ".join(f"{part} {size}" for part, size in characters.most_common())
    return (
        f"{characters.total()} characters and {images.total()} images are not in the main content"
        + (f"; characters: {parts}" if parts else "")
        + ("; images: " + ", ".join(f"{part} {count}" for part, count in images.most_common()) if images else "")
    )
