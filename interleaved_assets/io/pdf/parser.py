"""Reading of PDF files in processes that parse them."""

import json
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from interleaved_assets.io.pdf.settings import PdfSettings
from interleaved_assets.io.rows.parser_process import ParserProcess

_MOST_PAGE_BYTES: Final = 2**28
_MOST_ENDED: Final = 10
"""Parsers that one file may end: each is a process to start."""
Frame = tuple[dict[str, Any], list[bytes]]


class Parser(ParserProcess):
    """A running parser of PDF files."""

    module = "interleaved_assets.io.pdf.child"

    def frames(
        self, path: Path, settings: PdfSettings, pages_read: int = 0, seconds_used: float = 0
    ) -> Iterator[Frame]:
        """Yield the frames of a file after some pages; the last has ``ended`` or ``late`` if the parser ended early.

        ``seconds_used``, the processor time of parsers that ended before, count towards ``max_seconds``, beyond which
        the parser is ``late``.
        """
        self._begin()
        place = {"path": str(path), "pages_read": pages_read, "seconds_used": seconds_used}
        request = {**place, **settings.model_dump(mode="json")}
        with suppress(BrokenPipeError):  # its last words are read below
            self._in.write(json.dumps(request).encode() + b"\n")
            self._in.flush()
        while line := self._out.readline(_MOST_PAGE_BYTES):
            try:
                head = json.loads(line)
            except ValueError:
                break
            if "done" in head:
                self.is_idle = True
                return
            contents = [self._out.read(size) for size in head["sizes"]]
            if [len(content) for content in contents] != head["sizes"]:
                break
            yield head, contents
            if "ended" in head:
                return
        yield {"ended": self._last_words()}, []


def read_frames(path: Path, settings: PdfSettings) -> Generator[Frame, None, None]:
    """Yield the frames of a file: one with ``pages``, one for each ``page``, or one with ``refused``.

    A page that ends its parser has ``error``, and another parser reads the pages after it. The last frame has
    ``ended``, the reason, if pages are left: the file took too long, ended ten parsers, or one before its first page.
    """
    pages = read = 0
    seconds = 0.0
    for _ in range(_MOST_ENDED):
        with Parser.lent() as lent:
            for head, contents in lent.frames(path, settings, read, seconds):
                if "ended" in head or "late" in head:
                    break
                if "pages" in head and pages:
                    continue  # an earlier parser has said so
                pages, read = head.get("pages", pages), head.get("page", read)
                yield head, contents
            else:
                return
            seconds += head.get("seconds", 0.0)
        last = min(pages, settings.max_pages)
        if pages and read >= last:  # nothing was left to read
            return
        if "late" in head or not pages:
            break
        read += 1
        yield {"page": read, "blocks": [], "error": f"the parser {head['ended']}"}, []
        if read >= last:
            return
    yield {"ended": head.get("ended") or head["late"]}, []
