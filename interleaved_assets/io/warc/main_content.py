"""The choice of a page's main content among its blocks, by what HTML and class names say of its parts.

Rules and shares were chosen on the development pages of WCXB; ``benchmarks/warc.py`` measures them.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, chain, groupby, takewhile
from typing import Final, NamedTuple

from interleaved_assets.io.warc.page import Page, PageBlock, Region, parse_page

_SHARE_OF_PAGE: Final = 0.5
"""Share of a page's text above which a ``nav`` or ``footer`` is content: the page misuses the element."""
_SHARE_OF_MAIN: Final = 0.3
"""Share of the main text above which a part with a telling class name is content: the name means something else."""
_SHARE_OF_DIALOGS: Final = 0.5
"""Share of the main text above which all dialogs together are content: a magazine calls each paragraph ``paywall``."""
_LEAST_MAIN: Final = 0.35
"""Share of a page's text below which its ``main`` or ``article`` is not all of the content: a list has many."""
_LINKED: Final = 0.8
"""Share of a text in links above which it is nothing but a link."""
_SHORT_LINK: Final = 40
"""Characters of a text below which it is left out if it is nothing but a link."""
_LIST: Final = 3
"""Texts one after the other that are nothing but links from which on they are a list of other pages."""
_SHARE_OF_LISTS: Final = 0.7
"""Share of the main text above which such lists are the content."""
_SHORT_TEXT: Final = 30
"""Bytes in UTF-8 outside of links, above which a text is something to read; a Chinese character has three."""
_IMAGE: Final = 20
"""Bytes of text that an image stands for, so that photos with short captions are something to read."""
_SHARE_OF_STRETCH: Final = 0.7
"""Share of the main text below which the stretch with most to read is not all of the content."""


class PageContent(NamedTuple):
    """The blocks of a page that become rows, and the characters and images of the others, by the part of the page."""

    title: str | None
    language: str | None
    blocks: list[PageBlock]
    characters: Counter[str]
    images: Counter[str]


def page_content(html: bytes, url: str, only_main_content: bool) -> PageContent:
    """Return the main content of a page in UTF-8, or all of its blocks; ``url`` resolves relative addresses."""
    page = parse_page(html, url)
    if only_main_content:
        return PageContent(page.title, page.language, *choose_main(page))
    return PageContent(page.title, page.language, page.blocks, Counter(), Counter())


def choose_main(page: Page) -> tuple[list[PageBlock], Counter[str], Counter[str]]:
    """Return the blocks of the main content, and the characters and images of the others, by the part of the page."""
    blocks, sizes = page.blocks, [len(block.text) for block in page.blocks]
    parts: list[str | None] = [None] * len(blocks)
    # the walk leaves inner elements first: outer ones decide first, so that each block is marked once
    others = [region for region in reversed(page.regions) if region.part not in ("main", "article")]
    before = [0, *accumulate(sizes)]
    for region in others:
        if region.is_certain and before[region.end] - before[region.start] <= _SHARE_OF_PAGE * before[-1]:
            _mark(parts, region)
    before = [0, *accumulate(size if part is None else 0 for size, part in zip(sizes, parts, strict=True))]
    first, last = 0, len(blocks)
    for part in ("main", "article"):
        mains = [(before[one.end] - before[one.start], one.start, one.end) for one in page.regions if one.part == part]
        if mains and (largest := max(mains))[0] > _LEAST_MAIN * before[-1]:
            _, first, last = largest
            break
    most = _SHARE_OF_MAIN * (before[last] - before[first])
    named: list[tuple[Region, range]] = []
    for region in others:
        start, end = max(region.start, first), min(region.end, last)
        if not region.is_certain and start < end and before[end] - before[start] <= most:
            named.append((region, range(start, end)))
    dialogs = {at for region, places in named if region.part == "dialog" for at in places if parts[at] is None}
    are_content = sum(sizes[at] for at in dialogs) > _SHARE_OF_DIALOGS * (before[last] - before[first])
    for region, _ in named:
        if region.part != "dialog" or not are_content:
            _mark(parts, region)
    for at, block in enumerate(blocks):
        if parts[at] is None and not first <= at < last:
            parts[at] = "outside"
        elif parts[at] is None and _is_short_link(block):
            parts[at] = "links"
    _mark_lists(parts, blocks)
    _mark_ends(parts, blocks)
    main: list[PageBlock] = []
    characters, images = Counter[str](), Counter[str]()
    for where, block, size in zip(parts, blocks, sizes, strict=True):
        if where is None:
            main.append(block)
        elif block.url is not None:
            images[where] += 1
        else:
            characters[where] += size
    return main, characters, images


def _is_link(block: PageBlock) -> bool:
    """Return whether a text is nothing but links."""
    return block.links > _LINKED * len(block.text)


def _is_short_link(block: PageBlock) -> bool:
    return block.url is None and _is_link(block) and len(block.text) < _SHORT_LINK and block.tag in ("li", "div", "p")


def _mark_lists(parts: list[str | None], blocks: Sequence[PageBlock]) -> None:
    """Mark lists of other pages, with the images in them, unless they are the content of the page."""
    texts = [at for at, block in enumerate(blocks) if parts[at] is None and block.url is None]

    def is_link(at: int) -> bool:
        # captions of a gallery often are links, and so are many cells of a table
        is_row = blocks[at].tag == "tr" and " | " in blocks[at].text
        return _is_link(blocks[at]) and not is_row and blocks[at].tag != "figcaption"

    runs = [list(run) for are_links, run in groupby(texts, is_link) if are_links]
    lists = [run for run in runs if len(run) >= _LIST]
    size = sum(len(blocks[at].text) for run in lists for at in run)
    if size <= _SHARE_OF_LISTS * sum(len(blocks[at].text) for at in texts):
        for run in lists:
            parts[run[0] : run[-1] + 1] = [part or "links" for part in parts[run[0] : run[-1] + 1]]


def _mark_ends(parts: list[str | None], blocks: Sequence[PageBlock]) -> None:
    """Mark what is before and after the stretch of blocks with most to read, unless much of the text is there.

    A text counts by its bytes outside of links, less a constant, and an image by another: the consecutive blocks with
    the largest sum stay. So do a main heading before them with what follows it, images next to them, and an end of
    few texts. Source: Pasternack and Roth, "Extracting article text from the web with maximum subsequence
    segmentation" (WWW 2009), where a classifier gives the values.
    """
    left = [at for at, part in enumerate(parts) if part is None]
    sizes = [len(blocks[at].text.encode()) for at in left]
    start = first = last = 0
    most = value = 0.0
    for number, (block, size) in enumerate(zip((blocks[at] for at in left), sizes, strict=True)):
        if value <= 0:
            value, start = 0.0, number
        links = 0 if block.tag == "figcaption" else block.links  # captions of a gallery often are links
        value += size * (1 - links / len(block.text)) - _SHORT_TEXT if block.text else _IMAGE
        if value > most:
            most, first, last = value, start, number + 1
    if sum(sizes[first:last]) < _SHARE_OF_STRETCH * sum(sizes):
        return
    before = list(takewhile(lambda at: blocks[at].tag != "h1", (at for at in left[:first] if blocks[at].text)))
    after = [at for at in left[last:] if blocks[at].text]
    ends = range(before[-1] + 1) if len(before) >= _LIST else range(0)
    for at in chain(ends, range(after[0], len(blocks)) if len(after) >= _LIST else ()):
        parts[at] = parts[at] or "outside"


def _mark(parts: list[str | None], region: Region) -> None:
    """Note the part of the blocks of ``region``, unless it is inside of one that was noted."""
    if parts[region.start] is None or parts[region.end - 1] is None:
        parts[region.start : region.end] = [region.part] * (region.end - region.start)
