"""Access to the records of a web archive: an index of its pages and images, and their bodies by offset.

fastwarc decodes records. It stops at the first damage, and takes a file that is cut in some places for complete, so
that the index goes on after damage and checks the end.
"""

import gzip
import io
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, Literal

from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType

from interleaved_assets.io.storage import is_storage_failure
from interleaved_assets.model.errors import ShardError

_GZIP: Final = b"\x1f\x8b\x08"
_PLAIN: Final = b"WARC/1."
_DEFLATE: Final = -15
_Decode = Literal["none", "transfer", "all"]
_LESS_DECODED: Final[tuple[_Decode, ...]] = ("transfer", "none")
_READ_BYTES: Final = 2**16
_LONGEST_HEAD: Final = 2**18
"""Most bytes of the head of a server's answer, as in browsers."""
_MOST_DAMAGED: Final = 10_000
"""Damaged places after which the rest of an archive is not searched for records."""
_LEFT_OUT: Final = (WarcRecordType.resource, WarcRecordType.revisit, WarcRecordType.conversion, WarcRecordType.response)
_HTML: Final = frozenset(["text/html", "application/xhtml+xml"])


@dataclass(frozen=True, slots=True)
class PageRecord:
    """The place of a page's record; ``is_cut`` if the archive has not all of its bytes."""

    offset: int
    is_cut: bool


@dataclass
class ArchiveIndex:
    """Contents of an archive.

    Attributes:
        pages: the HTML responses with a status from 200 to 299, in the order of the file.
        images: offset of the first response with an image, by its address without fragment.
        records: number of records of any type.
        notes: counts of irregularities and of pages that are left out, by kind.
        shortfall: what shows that the archive is cut or damaged; None if nothing does.
    """

    pages: list[PageRecord] = field(default_factory=list)
    images: dict[str, int] = field(default_factory=dict)
    records: int = 0
    notes: Counter[str] = field(default_factory=Counter)
    shortfall: str | None = None


def index_archive(path: Path, uri: str) -> ArchiveIndex:
    """Read the archive once and return its index; memory grows by its pages' offsets and its images' addresses.

    Args:
        path: the archive, or a copy of it.
        uri: its name in errors.

    Raises:
        ShardError: no record can be read, or several records are in one gzip stream, in which they have no offsets.
    """
    index = ArchiveIndex()
    with path.open("rb") as file, path.open("rb") as other:
        magic = _GZIP if file.read(len(_GZIP)) == _GZIP else _PLAIN
        start, last = 0, -1
        while index.notes["damaged_places"] < _MOST_DAMAGED:
            try:
                file.seek(start)
                for record in ArchiveIterator(file, parse_http=False):
                    if record.stream_pos == last or index.records == 1:
                        _check_offset(other, record.stream_pos, magic, uri, is_repeated=record.stream_pos == last)
                    last = record.stream_pos
                    _add(index, record)
                following = _following(file, max(last, start)) if magic == _GZIP else None
            except (OSError, zlib.error) as error:
                if is_storage_failure(error):
                    raise
                index.notes["damaged_places"] += 1
                index.shortfall = index.shortfall or f"{error} after offset {max(last, start)}"
                following = _find(file, magic, max(last, start) + 1)
            if following is None:
                break
            start = following
        if index.records == 0:
            raise ShardError(
                f"{uri} is not a web archive, or is damaged so that no record can be read. Fetch it again, or take it "
                "out of the raw root."
            )
    return index


Body = tuple[WarcRecord | None, bytes, str | None]
"""A record, its body, and what is wrong with the body."""


def read_body(file: IO[bytes], offset: int, limit: int) -> Body:
    """Return the record at ``offset``, up to ``limit`` bytes of its decoded body, and what was wrong with the body.

    A body that is packed, or not, in another way than the server said is returned as text if it can be unpacked, and
    else as it is stored.
    """
    record, body, wrong = _read(file, offset, limit, "all")
    if (wrong is None or body) and not body.startswith(_GZIP):
        return record, body, wrong
    for decode in _LESS_DECODED:
        again, stored, problem = _read(file, offset, limit, decode)
        record = again if record is None else record
        if stored and problem is None:
            if (unpacked := _unpacked(stored, limit)) is not None:
                return again, unpacked, None
            if not stored.startswith(_GZIP):
                return again, stored, None
    return record, body, wrong


def _unpacked(stored: bytes, limit: int) -> bytes | None:
    """Return what gzip, zlib or deflate without a header has packed; None if none of them has."""
    if stored.startswith(_GZIP):
        return _members(stored, limit)
    for bits in (zlib.MAX_WBITS, _DEFLATE):
        member = zlib.decompressobj(bits)
        try:
            found = member.decompress(stored, limit)
        except zlib.error:
            continue
        # plain text may begin as deflate does, and end as such after some bytes
        if len(found) == limit or (member.eof and not (bits == _DEFLATE and member.unused_data)):
            return found
    return None


def _members(stored: bytes, limit: int) -> bytes | None:
    """Return the content of all gzip members up to bytes that are none; None if one is cut or damaged."""
    found = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(stored)) as file:
            while part := file.read1(limit - len(found)):
                found += part
    except gzip.BadGzipFile:
        pass  # what follows the last one, or its checksum, which browsers do not read either
    except (EOFError, zlib.error):
        return None
    return bytes(found)


def address(record: WarcRecord) -> str:
    """Return the address that a record was fetched from, without fragment and without the brackets of WARC 1.0."""
    return (record.headers.get("WARC-Target-URI") or "").strip().strip("<>").partition("#")[0]


def _read(file: IO[bytes], offset: int, limit: int, decode: _Decode) -> tuple[WarcRecord | None, bytes, str | None]:
    parts: list[bytes] = []
    filled, record, wrong = 0, None, None
    try:
        file.seek(offset)
        record = next(iter(ArchiveIterator(file, parse_http=False)))
        _parse_http(record, decode)
        while filled < limit and (part := record.reader.read(min(_READ_BYTES, limit - filled))):
            parts.append(part)
            filled += len(part)
    except (OSError, StopIteration) as error:
        if is_storage_failure(error):
            raise
        wrong = str(error) or "it has no record"
    return record, b"".join(parts), wrong


def _parse_http(record: WarcRecord, decode: _Decode) -> None:
    """Parse the head of a server's answer; as in browsers, its lines may end with a line feed alone."""
    record.parse_http(auto_decode=decode, max_header_len=_LONGEST_HEAD, quirks_mode=True)


def _add(index: ArchiveIndex, record: WarcRecord) -> None:
    """Read over ``record`` and add it to ``index``; raise OSError if it is damaged.

    A record whose body is cut is added.
    """
    has_length = "Content-Length" in record.headers
    index.records += has_length
    if len({*record.headers.get_multiple("WARC-Target-URI")}) > 1:
        raise OSError("the header of a record goes on in the next one")
    _parse_http(record, "none")
    entry = _entry(index, record)
    is_cut = True
    try:
        is_cut = record.reader.consume() != record.content_length or not has_length
    finally:
        if entry == "page":
            index.pages.append(PageRecord(record.stream_pos, is_cut))
        elif entry == "image" and not is_cut:
            index.images.setdefault(address(record), record.stream_pos)
    if is_cut:
        # a wrong length may have taken the records that follow for its own
        raise OSError("a record has fewer bytes than its header says")


def _entry(index: ArchiveIndex, record: WarcRecord) -> str | None:
    """Return ``"page"`` or ``"image"`` for the records that matter, and count those that are left out."""
    if record.record_type != WarcRecordType.response or record.http_headers is None or not address(record):
        index.notes["records_left_out"] += record.record_type in _LEFT_OUT
        return None
    # the second is what a crawler has found in the content; without it, a page that names no type cannot be told
    content_type = (record.http_content_type or record.headers.get("WARC-Identified-Payload-Type") or "").lower()
    content_type = content_type.partition(",")[0].strip()  # of headers that a server gave twice
    is_ok = 200 <= (record.http_headers.status_code or 0) < 300
    index.notes["records_left_out"] += is_ok and not content_type
    if content_type in _HTML:
        index.notes["pages_without_success"] += not is_ok
        index.notes["pages_cut_by_crawler"] += is_ok and "WARC-Truncated" in record.headers
        return "page" if is_ok else None
    return "image" if is_ok and content_type.startswith("image/") else None


def _check_offset(file: IO[bytes], offset: int, magic: bytes, uri: str, *, is_repeated: bool) -> None:
    """Raise ShardError if a record has not an offset of its own: the second one shows a file that is one stream."""
    file.seek(offset)
    if magic == _GZIP and (is_repeated or file.read(len(magic)) != magic):
        raise ShardError(
            f"{uri}: several records are in one gzip stream, so they cannot be found again. Write each record as a "
            "gzip member of its own, as 'warcio recompress' does, or unpack the file."
        )


def _find(file: IO[bytes], magic: bytes, start: int) -> int | None:
    """Return the next offset from ``start`` at which a record may begin; None if there is none."""
    file.seek(start)
    kept = b""
    while block := file.read(2**20):
        window = kept + block
        if (at := window.find(magic)) >= 0:
            return start - len(kept) + at
        start += len(block)
        kept = window[-len(magic) + 1 :]
    return None


def _following(file: IO[bytes], offset: int) -> int | None:
    """Return the offset of the first gzip member with content after the one at ``offset``; None at the end of the file.

    fastwarc ends at an empty member, and at one that is cut, as if the file ended there.

    Raises:
        OSError: the last member is cut.
        zlib.error: a member is damaged, or what follows is none.
    """
    file.seek(offset)
    pending = b""
    is_first = True
    while pending := pending or file.read(_READ_BYTES):
        at = file.tell() - len(pending)
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            if member.decompress(pending, _READ_BYTES) and not is_first:
                return at
            pending = member.unconsumed_tail
            if not member.eof and not pending and not (pending := file.read(_READ_BYTES)):
                raise OSError("the file ends inside a record")
        pending, is_first = member.unused_data, False
    return None
