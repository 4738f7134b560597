"""Decoding of pages: from bytes to UTF-8 by the charset of server or page, and limits that keep parsing fast."""

import codecs
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from interleaved_assets.io.rows.content_types import CONTROLS

# Labels of the WHATWG Encoding Standard whose Python codec has another name, or decodes fewer bytes.
_CODECS: Final = {
    "iso-8859-1": "cp1252", "latin1": "cp1252", "latin-1": "cp1252", "ascii": "cp1252", "us-ascii": "cp1252",
    "gb2312": "gb18030", "gbk": "gb18030", "gb18030": "gb18030", "shift_jis": "cp932", "shift-jis": "cp932",
    "sjis": "cp932", "x-sjis": "cp932", "windows-31j": "cp932", "euc-kr": "cp949", "ks_c_5601-1987": "cp949",
    "iso-8859-9": "cp1254", "tis-620": "cp874", "iso-8859-11": "cp874", "windows-874": "cp874", "big5": "big5hkscs",
    "unicode": "utf-16", "utf-16": "utf-16-le",
}  # fmt: skip
_KNOWN: Final = re.compile(
    r"utf-?8|utf-16(le|be)|windows-125\d|cp125\d|iso-?8859-\d{1,2}|koi8-[ru]|macintosh|euc-jp|iso-2022-jp|big5-hkscs|ibm866"
)
_META: Final = re.compile(rb"<meta[^>]{0,500}?charset\s*=\s*[\"']?\s*([\w:.-]{1,40})", re.IGNORECASE)
_META_BYTES: Final = 4096
_GUESSED_BYTES: Final = 2**16
_TAGS: Final = re.compile(
    rb"<(?:script|style)\b.{0,20000}?</(?:script|style)|<[^>]{0,2000}>", re.IGNORECASE | re.DOTALL
)
_OTHER_BYTES: Final = re.compile(rb"[\x80-\xff]+")
_LATIN_LETTERS: Final = re.compile(rb"[A-Za-z]+")
_OTHER_SCRIPTS: Final = (
    "cp932", "euc_jp", "gb18030", "big5hkscs", "cp949", "cp1251", "koi8_r", "cp1253", "cp1255", "cp1256", "cp874",
)  # fmt: skip
_BOMS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))

_TAG: Final = re.compile(rb"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_NOT_NESTED: Final = frozenset(
    b"area base br col embed hr img input link meta param source track wbr p li dt dd option tr td th".split()
)
_FEW_TAGS: Final = 10_000
_MOST_TAGS: Final = 200_000
_MOST_NESTED: Final = 20_000
"""Far beyond the depth of pages, since tags that close themselves in SVG, and those in comments and scripts, count."""
_LONG_TAG: Final = 20_000
"""Bytes of a tag from which on its attributes are counted."""
_MOST_ATTRIBUTES: Final = 2_000
_TAG_NAME: Final = re.compile(rb"<[a-zA-Z][^\t\n\f\r />]*")
# A name may contain any other character, also quotes and "<"; possessive, since a second try finds nothing more.
_MANY_ATTRIBUTES: Final = re.compile(
    rb"(?:[\t\n\f\r /]*+[^\t\n\f\r />][^\t\n\f\r />=]*+"
    rb"(?:[\t\n\f\r ]*+=[\t\n\f\r ]*+(?:\"[^\"]*+\"|'[^']*+'|[^\t\n\f\r >]*+))?+){%d}+" % (_MOST_ATTRIBUTES + 1)
)
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

    A page that nothing labels and that is not UTF-8 is Latin-1, or, if most of its letters are not Latin, what the
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
    """Return the codec of a page in another script than Latin; None if most of its letters are Latin, or nothing fits.

    Between the encodings of Latin letters, frequencies decide wrongly too often.
    """
    text = _TAGS.sub(b" ", body[:_GUESSED_BYTES])
    others = sum(map(len, _OTHER_BYTES.findall(text)))
    if others <= sum(map(len, _LATIN_LETTERS.findall(text))):
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


def excess(html: bytes) -> str | None:
    """Return why a page would take the parser very long, None if it would not.

    Time grows with the square of the depth of nested elements, and of the number of attributes of one element; memory
    with the number of elements.
    """
    for run in _long_runs(html):
        tag = _TAG_NAME.search(run)
        if tag and len(run) - tag.start() > _LONG_TAG and _MANY_ATTRIBUTES.match(run, tag.end()):
            return f"an element of the page has more than {_MOST_ATTRIBUTES} attributes"
    if (tags := html.count(b"<")) < _FEW_TAGS:
        return None
    if tags > _MOST_TAGS:
        return f"it has more than {_MOST_TAGS} tags"
    depth, open_tags = 0, dict[bytes, int]()
    for closing, name in _TAG.findall(html):
        name = name.lower()
        if name in _NOT_NESTED:
            continue
        if not closing:
            open_tags[name] = open_tags.get(name, 0) + 1
            depth += 1
            if depth > _MOST_NESTED:
                return f"its elements are nested more than {_MOST_NESTED} deep"
        elif open_tags.get(name):
            open_tags[name] -= 1
            depth -= 1
    return None


def _long_runs(html: bytes) -> Iterator[bytes]:
    """Yield the pieces between two ``>`` of a page that have more than ``_LONG_TAG`` bytes."""
    start = 0
    while len(html) - start > _LONG_TAG:
        end = html.rfind(b">", start, start + _LONG_TAG + 1)
        if end < 0:
            end = html.find(b">", start)
            end = len(html) if end < 0 else end
            yield html[start:end]
        start = end + 1


def _codec(label: str | None) -> str | None:
    """Return the name of Python's codec for a charset label; None for no label and for one that is not an encoding."""
    name = (label or "").strip(" \t\"'").lower()
    if name in _CODECS:
        return _CODECS[name]
    if not _KNOWN.fullmatch(name):
        return None
    try:
        return codecs.lookup(name).name
    except LookupError:
        return None
