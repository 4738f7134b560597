"""Text of documents as HTML: every character is shown, and none of it is markup of the page.

Paragraphs, headings, fenced code and tables of Markdown are set as such, with their marks; line breaks and spaces stay.
Characters that would change the text around them (control characters, overrides of the writing direction) are shown as
their escapes.
"""

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Final, Literal

from markupsafe import Markup, escape

BlockKind = Literal["code", "table", "heading", "paragraph"]

# C0 and C1 without tab and newline; embeddings and overrides of direction; characters without width or meaning here.
# Marks and isolates (200E, 200F, 061C, 2066 to 2069), which right-to-left text needs, act within their block only.
_SHOWN_AS_ESCAPE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_CONTROL_BYTES: Final = 40
_FENCE: Final = re.compile(r"\s*(`{3,}|~{3,})")
_HEADING: Final = re.compile(r"#{1,6}\s")


def prose(text: str) -> Markup:
    """Return ``text`` as block elements, each with its own direction: ``<pre>`` for code and tables, else ``<p>``."""
    blocks = []
    for kind, lines in _blocks(text.replace("\r\n", "\n")):
        shown = visible("\n".join(lines))
        match kind:
            case "code":
                blocks.append(Markup('<pre dir="ltr">{}</pre>').format(shown))
            case "table":
                blocks.append(Markup('<pre dir="auto">{}</pre>').format(shown))
            case "heading":
                blocks.append(Markup('<p dir="auto" class="heading">{}</p>').format(shown))
            case _:
                blocks.append(Markup('<p dir="auto">{}</p>').format(shown))
    return Markup("").join(blocks)


def visible(text: str) -> Markup:
    r"""Return ``text`` escaped for HTML, with control characters as visible escapes such as ``\x1b``."""
    return Markup(
        _SHOWN_AS_ESCAPE.sub(
            lambda match: f'<span class="control">{match[0].encode("unicode_escape").decode()}</span>',
            str(escape(text)),
        )
    )


def escaped_bytes(text: str) -> int:
    """Return the bytes that ``text`` takes in the page, without the elements around its blocks."""
    controls = len(_SHOWN_AS_ESCAPE.findall(text))
    return len(str(escape(text)).encode("utf-8", "replace")) + _CONTROL_BYTES * controls


def _blocks(text: str) -> Iterator[tuple[BlockKind, list[str]]]:
    """Yield groups of lines of one kind; empty lines divide paragraphs and are left out between blocks."""
    kinds: list[tuple[int, BlockKind | None, str]] = []
    fence, number = "", 0
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence:
            kinds.append((number, "code", line))
            if mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
                fence, number = "", number + 1
        elif mark:
            number += 1
            fence = mark[1]
            kinds.append((number, "code", line))
        elif not line.strip():
            kinds.append((number, None, line))
        elif _HEADING.match(line):
            number += 1
            kinds.append((number, "heading", line))
        else:
            kinds.append((number, "table" if line.lstrip().startswith("|") else "paragraph", line))
    for (_, kind), lines in groupby(kinds, key=lambda entry: entry[:2]):
        if kind:
            yield kind, [line for *_, line in lines]
