"""Decoding of pages: from bytes to UTF-8 by the charset of server or page."""

import codecs
import re
from contextlib import suppress
from typing import Final, NamedTuple

from interleaved_assets.io.rows.content_types import CONTROLS

# Labels of pages that Python does not know, and what browsers decode instead of what a label names.
_LABELS: Final = {
    "windows-31j": "cp932", "windows-949": "cp949", "windows-874": "cp874", "ks_c_5601-1989": "cp949",
    "gb_2312-80": "gb18030", "iso-8859-8-i": "iso8859-8", "iso-8859-6-i": "iso8859-6", "unicode": "utf-16-le",
}  # fmt: skip
_CODECS: Final = {
    "ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874",
    "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs",
    "utf-16": "utf-16-le",
}  # fmt: skip
_LABEL: Final = re.compile(r"[\w:.-]{1,40}", re.ASCII)
_NO_CHARSETS: Final = frozenset(
    ["utf-7", "idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "charmap"]
)
"""Python's codecs of text that are no charsets of pages."""
# No two parts of the patterns may match the same spaces or tags: time would grow with the square of their number.
_META: Final = re.compile(rb"<meta[^>]{0,500}?charset\s*=\s*(?:[\"']\s*)?([\w:.-]{1,40})", re.IGNORECASE)
_META_BYTES: Final = 4096
_GUESSED_BYTES: Final = 2**16
_TAGS: Final = re.compile(
    rb"<(?:script|style)\b.*?(?:</(?:script|style)|\Z)|<[^<>]{0,2000}>", re.IGNORECASE | re.DOTALL
)
_LATIN_MARKUP: Final = 4
"""Latin letters for each byte of another script, up to which a page is in that script: names, addresses, scripts."""
_OTHER_BYTES: Final = re.compile(rb"[\x80-\x9f\xa1-\xff]+")  # without no-break spaces
_LATIN_LETTERS: Final = re.compile(rb"[A-Za-z]+")
_OTHER_SCRIPTS: Final = (
    "cp932", "euc_jp", "gb18030", "big5hkscs", "cp949", "cp1251", "koi8_r", "cp1253", "cp1255", "cp1256", "cp874",
)  # fmt: skip
_BOMS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))

_JUDGED_BYTES: Final = 4_096


class DecodedPage(NamedTuple):
    """A page in UTF-8, as the parser takes it, and what is uncertain of it."""

    html: bytes
    is_guessed: bool = False
    """True if nothing names the charset, so that the frequency of characters decided."""
    has_replaced: bool = False
    """True if U+FFFD replaces bytes that the charset does not have."""


def decode_html(body: bytes, charset: str | None) -> DecodedPage:
    """Return a page in UTF-8: decoded by its byte order mark, the server's ``charset``, its ``meta``, else UTF-8.

    A page that nothing labels and that is not UTF-8 is Latin-1, or, if a fifth of its letters are not ASCII, what the
    frequency of its characters shows. Bytes that the encoding does not have become U+FFFD.
    """
    for mark, codec in _BOMS:
        if body.startswith(mark):
            return _decoded(body[len(mark) :], codec)
    codec_name = _codec(charset)
    if codec_name is None and (found := _META.search(body[:_META_BYTES])):
        codec_name = _codec(found[1].decode("ascii", "replace"))
        # a page whose meta can be read as ASCII is in no encoding of two bytes
        codec_name = "utf-8" if codec_name and codec_name.startswith("utf-16") else codec_name
    if codec_name is not None:
        return _decoded(body, codec_name)
    try:
        body.decode()
    except UnicodeDecodeError:
        guessed = _guessed(body)
        return _decoded(body, guessed or "cp1252")._replace(is_guessed=guessed is not None)
    return DecodedPage(body)


def _decoded(body: bytes, codec: str) -> DecodedPage:
    try:
        text = body.decode(codec)
    except UnicodeDecodeError:
        return DecodedPage(body.decode(codec, "replace").encode(), has_replaced=True)
    return DecodedPage(body if codec == "utf-8" else text.encode())


def _guessed(body: bytes) -> str | None:
    """Return the codec of a page in another script than Latin; None if few of its letters are, or nothing fits.

    Between the encodings of Latin letters, frequencies decide wrongly too often.
    """
    text = _TAGS.sub(b" ", body[:_GUESSED_BYTES])
    others = sum(map(len, _OTHER_BYTES.findall(text)))
    if others * _LATIN_MARKUP <= sum(map(len, _LATIN_LETTERS.findall(text))):
        return None
    from charset_normalizer import from_bytes  # only few pages need it

    found = from_bytes(text, cp_isolation=list(_OTHER_SCRIPTS)).best()
    return None if found is None else found.encoding


def is_binary(html: bytes) -> bool:
    """Return whether more than 1 % of the first bytes of a decoded page are control characters that no text has.

    Of packed content these are about 5 %. Zeros that fill the end of a page do not count.
    """
    first = html[:_JUDGED_BYTES].rstrip(b"\0")
    return (len(first) - len(first.translate(None, CONTROLS))) * 100 > len(first)


def _codec(label: str | None) -> str | None:
    """Return the name of Python's codec for a charset label; None for no label and for one that is not an encoding."""
    name = (label or "").strip(" \t\"'").lower()
    if not _LABEL.fullmatch(name):
        return None
    for known in (_LABELS.get(name, name), name.removeprefix("x-")):
        with suppress(LookupError):
            codec = codecs.lookup(known).name
            if codec not in _NO_CHARSETS and _has_ascii(codec):
                return _CODECS.get(codec, codec)
    return None


def _has_ascii(codec: str) -> bool:
    """Return whether a page can be in ``codec``: of those without ASCII, pages are in UTF-16 only.

    Raises:
        LookupError: it does not give text, such as base64.
    """
    return b"<p>a".decode(codec, "replace") == "<p>a" or codec.startswith("utf-16")
