"""The texts and images of a web page in their order, each with the part of the page that it is in."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import urljoin

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode, create_tag

_SKIPPED: Final = frozenset((
    "script", "style", "noscript", "template", "svg", "iframe", "object", "embed", "canvas", "audio", "video", "map",
    "head", "title", "select", "textarea", "input", "button", "datalist", "option", "progress", "meter",
))  # fmt: skip
_BLOCKS: Final = frozenset((
    "address", "article", "aside", "blockquote", "body", "center", "dd", "details", "dialog", "dir", "div", "dl",
    "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header",
    "hgroup", "hr", "legend", "li", "main", "menu", "nav", "ol", "p", "pre", "search", "section", "summary", "table",
    "tbody", "thead", "tfoot", "tr", "caption", "ul", "span",
))  # fmt: skip
_CELLS: Final = frozenset(("td", "th"))
_TAGS: Final = {create_tag(tag).tag_id: tag for tag in (*_SKIPPED, *_BLOCKS, *_CELLS, "a", "br", "img")} | {
    next(LexborHTMLParser("-").css("body")[0].iter(include_text=True)).tag_id: "-text"
}
"""Names of the nodes that matter, by the engine's numbers: a number is read sooner than a name."""
_PARTS: Final = {
    "nav": "navigation", "menu": "navigation", "footer": "footer", "aside": "aside", "dialog": "dialog",
    "header": "header", "main": "main", "article": "article",
}  # fmt: skip
_ROLES: Final = {
    "navigation": "navigation", "menu": "navigation", "menubar": "navigation", "toolbar": "navigation",
    "tablist": "navigation", "banner": "header", "contentinfo": "footer", "complementary": "aside", "search": "search",
    "dialog": "dialog", "alertdialog": "dialog", "tooltip": "dialog", "main": "main", "article": "article",
}  # fmt: skip
_WORDS: Final = {
    "navigation": "nav navbar navigation menu submenu megamenu breadcrumb breadcrumbs pagination pager toc skip topbar",
    "footer": "footer copyright colophon legal disclaimer",
    "aside": "sidebar widgets related recommend* similar popular trending promo* sponsor* ad ads advert* banner",
    "dialog": "cookie cookies consent gdpr modal popup popover newsletter subscribe subscription signup login register "
    "paywall notice alert toast tooltip",
    "share": "share sharing social follow print reactions votes",
    "author": "author byline author-bio meta signature avatar userinfo user-info",
    "comments": "comments disqus respond",
    "hidden": "sr-only visually-hidden screen-reader-text editsection",
}
"""By part of a page, the words that name it as a class or id, or between hyphens of one; * stands for more letters."""
_ANY: Final = "|".join(f"(?P<{part}>{'|'.join(words.split())})" for part, words in _WORDS.items())
_NAMES: Final = re.compile(rf"(?:^|[\s_-])(?:{_ANY})(?:$|[\s_-])".replace("*", r"\w*"))
_BEGINNINGS: Final = tuple(re.findall(r"(\S+)\*", " ".join(_WORDS.values())))
_FIRST_WORDS: Final = frozenset(word.partition("-")[0] for words in _WORDS.values() for word in words.split())
"""Most names have none of these words, which is found out sooner than that the pattern does not match."""
_SEEN_OF_NAMES: Final = 1000
_TELLING: Final = frozenset(("hidden", "aria-hidden", "style", "role", "itemprop"))
"""Attributes besides names that say what part of the page an element is."""
_LITTLE_TEXT: Final = 500
"""Characters below which a page's text may be in ``noscript``, as that of forums that are built by scripts."""
_BREAK: Final = "\0"
"""A ``br`` among the pieces of a text; the parser leaves no such character in a text."""
_HEADINGS: Final = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
"""Elements that are broken for their looks, such as in a banner, and stay one line."""
_MANY_ENDS: Final = re.compile(r"\n{3,}")
_TINY: Final = ("0", "1", "2")
_LAZY: Final = ("data-src", "data-lazy-src", "data-original", "data-lazy")
_SEEN_OF_SET: Final = 20_000
_CANDIDATES: Final = re.compile(r",\s+")
_SIZES: Final = re.compile(r"(\s[\d.]+[wxh]),(?=\S)")


@dataclass(slots=True)
class PageBlock:
    """A text or an image of a page.

    Attributes:
        text: with white space collapsed, except in ``pre``, and lines where the page breaks them; empty for an image.
        tag: the element that ended the text; ``img`` for an image.
        links: characters of the text that are in links.
        url: the image's address, resolved; a ``data:`` URL as it is; None for a text.
        alt: the image's alternative text.
        caption: the text of the ``figcaption`` of the image's figure.
    """

    text: str
    tag: str
    links: int = 0
    url: str | None = None
    alt: str | None = None
    caption: str | None = None


class Region(NamedTuple):
    """Consecutive blocks of one element, from ``start`` up to ``end``.

    ``part`` is ``main``, ``article``, or what the element is instead, such as ``footer``. ``is_certain`` if HTML says
    so, and not a class name.
    """

    start: int
    end: int
    part: str
    is_certain: bool


@dataclass
class Page:
    """A page with all of its blocks; :func:`.choose_main` says which of them are its main content."""

    title: str | None = None
    language: str | None = None
    blocks: list[PageBlock] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)


def parse_page(html: bytes, url: str) -> Page:
    """Return the blocks of a page in UTF-8; ``url`` is what relative addresses are resolved with."""
    tree = LexborHTMLParser(html, options=LexborDocumentOptions.WO_EVENTS)
    page = Page()
    if (root := tree.body) is None:
        return page
    if (title := tree.css_first("title")) is not None:
        page.title = " ".join(title.text().split()) or None
    if (top := tree.root) is not None:
        page.language = (top.attributes.get("lang") or "").strip()[:35] or None
    if (base := tree.css_first("base[href]")) is not None:
        url = _resolved(url, base.attributes.get("href")) or url
    walk = _Walk(url, _SKIPPED)
    walk.run(root)
    if sum(len(block.text) for block in walk.blocks) < _LITTLE_TEXT and tree.css_first("noscript") is not None:
        walk = _Walk(url, _SKIPPED - {"noscript"})
        walk.run(root)
    page.blocks, page.regions = walk.blocks, walk.regions
    return page


_Attributes = Mapping[str, str | None]
_Open = tuple[LexborNode, str, int, str | None, bool]
"""An element whose children are being walked over: itself, its tag, the number of blocks before it, its part, and
whether that is certain. A plain tuple is made in a third of the time that a named one takes."""


class _Walk:
    """A walk over the elements of a page, without recursion, since pages may be nested deep.

    A page has thousands of nodes, most of them white space or elements that say nothing: it does little for those.
    """

    def __init__(self, base: str, skipped: frozenset[str]) -> None:
        self.blocks: list[PageBlock] = []
        self.regions: list[Region] = []
        self._base, self._skipped = base, skipped
        self._pieces: list[str] = []
        self._links = self._link_depth = self._pre_depth = 0

    def run(self, root: LexborNode) -> None:
        blocks, pieces, skipped = self.blocks, self._pieces, self._skipped
        opened: list[_Open] = []
        node: LexborNode | None = root
        while True:
            if node is None:
                node, tag, start, part, is_certain = opened.pop()
                if tag in _BLOCKS:
                    if pieces and (part or tag != "span"):
                        self._flush(tag)
                    if part and len(blocks) > start:
                        self.regions.append(Region(start, len(blocks), part, is_certain))
                    if tag == "pre":
                        self._pre_depth -= 1
                    elif tag == "figure":
                        _set_captions(blocks[start:])
                elif tag == "a":
                    self._link_depth -= 1
                if not opened:
                    break
                node = node.next
                continue
            tag = _TAGS.get(node.tag_id, "")
            if tag == "-text":
                if pieces or self._pre_depth or not node.is_empty_text_node:
                    self._add_text(node.text_content or "")
            elif tag == "img":
                self._add_image(node)
            elif tag == "br":
                self._add_break(is_heading=any(tag in _HEADINGS for _, tag, *_ in opened[-3:]))
            elif tag not in skipped:
                part, is_certain = None, False
                if tag in _BLOCKS:
                    part, is_certain = _part(tag, node.attributes)
                    if pieces and (part or tag != "span"):
                        self._flush(tag)
                    if tag == "pre":
                        self._pre_depth += 1
                elif tag == "a":
                    self._link_depth += 1
                elif tag in _CELLS and pieces:
                    pieces.append(" | ")
                opened.append((node, tag, len(blocks), part, is_certain))
                node = node.first_child
                continue
            node = node.next
        self._flush("body")

    def _add_text(self, text: str) -> None:
        if not self._pieces and not self._pre_depth and text.isspace():
            return  # before a text
        self._pieces.append(text)
        if self._link_depth:
            self._links += len(text.strip())

    def _add_break(self, *, is_heading: bool) -> None:
        if self._pre_depth:
            self._pieces.append("\n")
        elif self._pieces:
            self._pieces.append(" " if is_heading else _BREAK)

    def _flush(self, tag: str) -> None:
        """End the current text, if there is one, which is in an element ``tag`` or before one."""
        whole = "".join(self._pieces)
        text = whole.strip("\n") if self._pre_depth else _collapsed(whole)
        if text and not text.isspace():
            self.blocks.append(PageBlock(text, tag, min(self._links, len(text))))
        self._pieces.clear()
        self._links = 0

    def _add_image(self, node: LexborNode) -> None:
        attributes = node.attributes
        if attributes.get("width") in _TINY or attributes.get("height") in _TINY:
            return  # it counts visits or fills space
        sources = [attributes]
        parent = node.parent
        if parent is not None and parent.tag == "picture":
            sources += [child.attributes for child in parent.iter() if child.tag == "source"]
        if (url := _resolved(self._base, _largest(sources))) is not None:
            self._flush("img")
            alt = " ".join((attributes.get("alt") or "").split()) or None
            self.blocks.append(PageBlock("", "img", url=url, alt=alt))


def _collapsed(text: str) -> str:
    """Return a text with its white space collapsed and its breaks as line ends, two at most."""
    if _BREAK not in text or " | " in text:  # a row of cells stays one line
        return " ".join(text.replace(_BREAK, " ").split()).strip(" |")
    lines = [" ".join(line.split()) for line in text.split(_BREAK)]
    return _MANY_ENDS.sub("\n\n", "\n".join(lines)).strip("\n |")


def _set_captions(figure: Sequence[PageBlock]) -> None:
    caption = " ".join(word for block in figure if block.tag == "figcaption" for word in block.text.split()) or None
    for block in figure:
        if block.url is not None:
            block.caption = caption


def _part(tag: str, attributes: _Attributes) -> tuple[str | None, bool]:
    """Return the part of the page that an element is, None if nothing says so, and whether that is certain."""
    if not attributes or tag == "body":
        return _PARTS.get(tag), tag not in ("header", "aside")
    if not _TELLING.isdisjoint(attributes):
        style = attributes.get("style")
        if "hidden" in attributes or attributes.get("aria-hidden") == "true":
            return "hidden", True
        if style and "display:none" in style[:_SEEN_OF_NAMES].replace(" ", "").lower():
            return "hidden", True
        if (role := attributes.get("role")) in _ROLES:
            return _ROLES[role], True
        if tag != "main" and attributes.get("itemprop") in ("articleBody", "mainContentOfPage"):
            return "article", True
    if tag in _PARTS and tag != "aside":
        return _PARTS[tag], tag != "header"
    names, classes = attributes.get("id"), attributes.get("class")
    part = (names and _part_of_names(names)) or (classes and _part_of_names(classes)) or None
    return (part, False) if tag != "aside" else ("aside", part == "aside")


@lru_cache(maxsize=4096)  # the elements of a page mostly have the same few names
def _part_of_names(names: str) -> str | None:
    names = names[:_SEEN_OF_NAMES].lower()
    words = names.replace("-", " ").replace("_", " ").split()
    if _FIRST_WORDS.isdisjoint(words) and not any(map(names.__contains__, _BEGINNINGS)):
        return None
    found = _NAMES.search(names)
    return found.lastgroup if found else None


def _largest(sources: Sequence[_Attributes]) -> str | None:
    """Return the address of the largest image of ``srcset``, else ``src``, or what scripts load in its place."""
    best, widest = None, 0.0
    for attributes in sources:
        if not (srcset := attributes.get("srcset") or attributes.get("data-srcset")):
            continue
        for candidate in _CANDIDATES.split(_SIZES.sub(r"\1, ", srcset[:_SEEN_OF_SET])):
            address, _, size = candidate.strip().rstrip(",").partition(" ")
            number = _number(size.strip().rstrip("wxh,"))
            # a number with x is a factor and not a width: within one set they do not mix
            if address and not address.startswith("data:") and number > widest:
                best, widest = address, number
    if best is not None:
        return best
    own = sources[0]
    source = own.get("src")
    if source and not source.startswith("data:") and "placeholder" not in source:
        return source
    return next((value for name in _LAZY if (value := own.get(name))), source)


def _number(text: str) -> float:
    try:
        return float(text or 1)
    except ValueError:
        return 0.0


def _resolved(base: str, url: str | None) -> str | None:
    """Return the absolute address without fragment; None for one that is no http, https or data URL."""
    if not url:
        return None
    url = url.strip()
    if url[:5].lower() == "data:":
        return url
    try:
        absolute = urljoin(base, url).partition("#")[0]
    except ValueError:
        return None
    return absolute if absolute.startswith(("http://", "https://")) else None
