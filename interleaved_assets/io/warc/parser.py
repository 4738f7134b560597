"""Parse pages in a process with limits, since any may take very long or much memory.

The time and memory of HTML's rules grow with the square of the tags and of the attributes of a page: elements such as
``<b>`` that are left open are repeated in every paragraph, each attribute is compared with all others, a closing tag
with all elements that it is in, and an image with all sources of its ``picture``. What a page takes shows only when it
is parsed.
"""

import json
import marshal
import signal
from collections import Counter
from contextlib import suppress
from typing import Final

from interleaved_assets.io.rows.parser_process import ParserProcess
from interleaved_assets.io.warc.child import SIZE_BYTES, TOO_LARGE, limits_of
from interleaved_assets.io.warc.main_content import PageContent
from interleaved_assets.io.warc.page import PageBlock
from interleaved_assets.model.errors import ShardError

_MOST_TAGS: Final = 200_000
"""The rows of a page take memory in this process, too."""
_MOST_REPEATED: Final = 2**26
"""Characters of captions and addresses in the rows of a page beyond its own size: many images may share a caption."""
_CRASHES: Final = (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS)


class PageTooHeavyError(ValueError):
    """A page has too many tags, repeats too much or ended its parser; the message says which limit it passed."""


class _Parser(ParserProcess):
    module = "interleaved_assets.io.warc.child"

    def parse(self, html: bytes, url: str, only_main_content: bool) -> PageContent:
        self._begin()
        with suppress(BrokenPipeError):  # its exit code is looked at below
            self._in.write(json.dumps((url, len(html), only_main_content)).encode() + b"\n" + html)
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
        title, language, blocks, characters, images = marshal.loads(answer)
        found = [PageBlock(*block) for block in blocks]
        return PageContent(title, language, found, Counter(characters), Counter(images))


def parse_within_limits(html: bytes, url: str, only_main_content: bool) -> PageContent:
    """Return :func:`.page_content` of a page that may be hostile.

    Raises:
        PageTooHeavyError: it, or its rows, take more memory or time than those of a page may.
        ShardError: its parser ended for another reason, such as a kill.
    """
    if html.count(b"<") > _MOST_TAGS:
        raise PageTooHeavyError(f"it has more than {_MOST_TAGS} tags")
    with _Parser.lent() as lent:
        page = lent.parse(html, url, only_main_content)
    repeated = sum(len(url) + len(block.url or "") + len(block.caption or "") for block in page.blocks)
    if repeated > len(html) + _MOST_REPEATED:
        raise PageTooHeavyError(f"its rows repeat more than {_MOST_REPEATED // 2**20} MiB of captions and addresses")
    return page
