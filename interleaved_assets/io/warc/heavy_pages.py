"""Parse pages that may take very long or much memory, in a process with limits.

The time and memory of HTML's rules grow with the square of the tags and of the attributes of a page: elements such as
``<b>`` that are left open are repeated in every paragraph, each attribute is compared with all others, and a closing
tag with all elements that it is in. What a page takes shows only when it is parsed.
"""

import json
import marshal
import re
import signal
from contextlib import suppress
from typing import Final

from interleaved_assets.io.rows.parser_process import ParserProcess
from interleaved_assets.io.warc.child import SIZE_BYTES, TOO_LARGE, limits_of
from interleaved_assets.io.warc.page import Page, PageBlock, Region, parse_page
from interleaved_assets.model.errors import ShardError

_MOST_TAGS: Final = 200_000
"""The rows of a page take memory in this process, too."""
_HEAVY_BYTES: Final = 2**19
_HEAVY_TAGS: Final = 10_000
_HEAVY_ELEMENTS: Final = 1_000_000
_HEAVY_BODIES: Final = 4
_HEAVY_TAG_BYTES: Final = 20_000
"""Bytes of a tag whose attributes may be very many."""
_TAG: Final = re.compile(rb"<[a-zA-Z]")
_CRASHES: Final = (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS)
_REPEATED: Final = re.compile(
    rb"<(?=[bcefhistu])(b|big|code|em|font|i|s|small|strike|strong|tt|u|body|html)[\s/]",
    re.IGNORECASE,
)
"""Tags with attributes of formatting elements, and of the elements to which a second tag adds its attributes.

Their first letters are tried first: most tags begin with another one, which halves the time.
"""
_WITHOUT_ATTRIBUTES: Final = 42
"""Formatting elements that are repeated without attributes at most: three of each of their 14 names."""


class PageTooHeavyError(ValueError):
    """A page has too many tags or ended its parser; the message says which limit it passed."""


class _Parser(ParserProcess):
    module = "interleaved_assets.io.warc.child"

    def parse(self, html: bytes, url: str) -> Page:
        self._begin()
        with suppress(BrokenPipeError):  # its exit code is looked at below
            self._in.write(json.dumps((url, len(html))).encode() + b"\n" + html)
            self._in.flush()
        size = int.from_bytes(self._out.read(SIZE_BYTES))
        answer = self._out.read(size)
        if not size or len(answer) < size:
            memory, seconds = limits_of(len(html))
            code = self._process.wait()
            if code == -signal.SIGPROF:
                raise PageTooHeavyError(f"it took the parser more than {seconds} s of processor time")
            if code == TOO_LARGE:
                raise PageTooHeavyError(f"it took the parser more than {memory // 2**20} MiB of memory")
            if code in _CRASHES:
                raise PageTooHeavyError(f"it crashed the parser, which may take {memory // 2**20} MiB of memory")
            raise ShardError(f"the parser of the page {url} ended with code {code}: {self._last_words()}")
        self.is_idle = True
        title, language, blocks, regions = marshal.loads(answer)
        return Page(title, language, [PageBlock(*block) for block in blocks], [Region(*region) for region in regions])


def parse_within_limits(html: bytes, url: str) -> Page:
    """Return :func:`.parse_page` of a page that may be hostile.

    Raises:
        PageTooHeavyError: it takes more memory or time than a page may.
        ShardError: its parser ended for another reason, such as a kill.
    """
    if (tags := html.count(b"<")) > _MOST_TAGS:
        raise PageTooHeavyError(f"it has more than {_MOST_TAGS} tags")
    if not _is_heavy(html, tags):
        return parse_page(html, url)
    with _Parser.lent() as lent:
        return lent.parse(html, url)


def _is_heavy(html: bytes, tags: int) -> bool:
    """Return whether a page may take more than some seconds and some hundred MB; its bytes are only counted."""
    if len(html) > _HEAVY_BYTES or tags > _HEAVY_TAGS or _has_long_tag(html):
        return True
    names = _REPEATED.findall(html)
    bodies = sum(name.lower() in (b"body", b"html") for name in names)
    # an element that is left open is repeated after each tag; of those with the same attributes, three are
    return bodies > _HEAVY_BODIES or (len(names) + _WITHOUT_ATTRIBUTES) * tags > _HEAVY_ELEMENTS


def _has_long_tag(html: bytes) -> bool:
    """Return whether a tag has more than ``_HEAVY_TAG_BYTES`` without a ``>``; long texts and scripts may count."""
    start = 0
    while len(html) - start > _HEAVY_TAG_BYTES:
        end = html.rfind(b">", start, start + _HEAVY_TAG_BYTES + 1)
        if end < 0:
            end = html.find(b">", start)
            end = len(html) if end < 0 else end
            if _TAG.search(html, start, end - _HEAVY_TAG_BYTES):
                return True
        start = end + 1
    return False
