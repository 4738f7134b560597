"""Decoding of pages: from bytes to text by the charset of server or page, and limits that keep parsing fast."""

import codecs
import re
from typing import Final

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
_BOMS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))

_TAG: Final = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_NOT_NESTED: Final = frozenset((
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
    "p", "li", "dt", "dd", "option", "tr", "td", "th",
))  # fmt: skip
_FEW_TAGS: Final = 10_000
_MOST_TAGS: Final = 200_000
_MOST_NESTED: Final = 2_000
_LONG_TAG: Final = re.compile(r"<[a-zA-Z][^<>]{20000,}")
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'")
_MOST_ATTRIBUTES: Final = 2_000


def decode_html(body: bytes, charset: str | None) -> str:
    """Return the text of a page: by its byte order mark, the server's ``charset``, its ``meta``, else UTF-8 or Latin-1.

    Bytes that the encoding does not have become U+FFFD.
    """
    for mark, codec in _BOMS:
        if body.startswith(mark):
            return body[len(mark) :].decode(codec, "replace")
    codec_name = _codec(charset)
    if codec_name is None and (found := _META.search(body[:_META_BYTES])):
        codec_name = _codec(found[1].decode("ascii", "replace"))
        # a page whose meta can be read as ASCII is in no encoding of two bytes
        codec_name = "utf-8" if codec_name and codec_name.startswith("utf-16") else codec_name
    if codec_name in (None, "utf-8"):
        try:
            return body.decode()
        except UnicodeDecodeError:
            return body.decode("cp1252" if codec_name is None else "utf-8", "replace")
    return body.decode(codec_name, "replace")


def excess(html: str) -> str | None:
    """Return why a page would take the parser very long, None if it would not.

    Time grows with the square of the depth of nested elements, and of the number of attributes of one element; memory
    with the number of elements.
    """
    for tag in _LONG_TAG.finditer(html):
        if len(_QUOTED.sub("", tag[0]).split()) > _MOST_ATTRIBUTES:
            return f"an element of the page has more than {_MOST_ATTRIBUTES} attributes"
    if (tags := html.count("<")) < _FEW_TAGS:
        return None
    if tags > _MOST_TAGS:
        return f"it has more than {_MOST_TAGS} tags"
    depth, open_tags = 0, dict[str, int]()
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
