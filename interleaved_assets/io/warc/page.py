"""The texts and images of a web page in their order, each with the part of the page that it is in."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import urljoin

from selectolax.lexbor import LexborHTMLParser, LexborNode

_SKIPPED: Final = frozenset((
    "script", "style", "noscript", "template", "svg", "iframe", "object", "embed", "canvas", "audio", "video", "map",
    "head", "title", "select", "textarea", "input", "button", "datalist", "option", "progress", "meter",
))  # fmt: skip
_BLOCKS: Final = frozenset((
    "address", "article", "aside", "blockquote", "body", "center", "dd", "details", "dialog", "dir", "div", "dl",
    "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header",
    "hgroup", "hr", "legend", "li", "main", "menu", "nav", "ol", "p", "pre", "search", "section", "summary", "table",
    "tbody", "thead", "tfoot", "tr", "caption", "ul",
))  # fmt: skip
_ENTERED: Final = frozenset(("a", "span"))
"""Elements besides blocks whose start and end say something."""
_CELLS: Final = frozenset(("td", "th"))
_PARTS: Final = {
    "nav": "navigation", "menu": "navigation", "footer": "footer", "aside": "aside", "dialog": "dialog",
    "header": "header",
}  # fmt: skip
_ROLES: Final = {
    "navigation": "navigation", "menu": "navigation", "menubar": "navigation", "toolbar": "navigation",
    "tablist": "navigation", "banner": "header", "contentinfo": "footer", "complementary": "aside", "search": "search",
    "dialog": "dialog", "alertdialog": "dialog", "tooltip": "dialog",
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
_BEGINNINGS: Final = tuple(word[:-1] for words in _WORDS.values() for word in words.split() if word.endswith("*"))
_FIRST_WORDS: Final = frozenset(word.partition("-")[0] for words in _WORDS.values() for word in words.split())
"""Most names have none of these words, which is found out sooner than that the pattern does not match."""
_SEEN_OF_NAMES: Final = 1000
_TELLING: Final = frozenset(("hidden", "aria-hidden", "style", "role", "itemprop"))
"""Attributes besides names that say what part of the page an element is."""
_LITTLE_TEXT: Final = 500
"""Characters below which a page's text may be in ``noscript``, as that of forums that are built by scripts."""
_ABSOLUTE: Final = re.compile(r"https?://[\w.:-]+/[\w./%~+,@=&:-]*(?:\?[\w./%~+,@=&:-]+)?", re.ASCII)
"""Most absolute addresses; the others take urljoin longer."""
_LAZY: Final = ("data-src", "data-lazy-src", "data-original", "data-lazy")
_SIZES: Final = re.compile(r"(\s[\d.]+[wxh]),(?=\S)")


@dataclass(slots=True)
class PageBlock:
    """A text or an image of a page.

    Attributes:
        text: with white space collapsed, except in ``pre``; empty for an image.
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


def parse_page(html: str, url: str) -> Page:
    """Return the blocks of a page; ``url`` is what relative addresses are resolved with."""
    tree = LexborHTMLParser(html)
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


_Open = tuple[str, int, str | None, bool]
"""An element whose children are being walked over: its tag, the number of blocks before it, its part, and whether that
is certain. A plain tuple is made in a third of the time that a named one takes."""


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
        pieces, skipped = self._pieces, self._skipped
        pending: list[LexborNode | None] = [root]  # None where the element that was entered last ends
        opened: list[_Open] = []
        while pending:
            node = pending.pop()
            if node is None:
                self._leave(*opened.pop())
                continue
            tag = node.tag
            if tag == "-text":
                if pieces or self._pre_depth or not node.is_empty_text_node:
                    self._add_text(node.text_content or "")
                continue
            if tag in _BLOCKS or tag in _ENTERED:
                opened.append(self._enter(tag, node))
                pending.append(None)
            elif tag == "img":
                self._add_image(node)
            elif tag == "br":
                self._add_text("\n")
            elif tag in skipped or not tag:
                continue
            elif tag in _CELLS and pieces:
                pieces.append(" | ")
            child = node.last_child
            while child is not None:
                pending.append(child)
                child = child.prev
        self._flush("body")

    def _enter(self, tag: str, node: LexborNode) -> _Open:
        if tag == "a":
            self._link_depth += 1
            return tag, 0, None, False
        part, is_certain = _part(tag, node.attributes)
        if self._pieces and (part or tag != "span"):
            self._flush(tag)
        if tag == "pre":
            self._pre_depth += 1
        return tag, len(self.blocks), part, is_certain

    def _leave(self, tag: str, start: int, part: str | None, is_certain: bool) -> None:
        if tag == "a":
            self._link_depth -= 1
            return
        if self._pieces and (part or tag != "span"):
            self._flush(tag)
        if part and len(self.blocks) > start:
            self.regions.append(Region(start, len(self.blocks), part, is_certain))
        if tag == "pre":
            self._pre_depth -= 1
        elif tag == "figure":
            blocks = self.blocks[start:]
            caption = " ".join(block.text for block in blocks if block.tag == "figcaption") or None
            for block in blocks:
                if block.url is not None:
                    block.caption = caption

    def _add_text(self, text: str) -> None:
        if not self._pieces and not self._pre_depth and text.isspace():
            return  # before a text
        self._pieces.append(text)
        if self._link_depth:
            self._links += len(text.strip())

    def _flush(self, tag: str) -> None:
        """End the current text, if there is one, which is in an element ``tag`` or before one."""
        whole = "".join(self._pieces)
        text = whole.strip("\n") if self._pre_depth else " ".join(whole.split()).strip(" |")
        if text and not text.isspace():
            self.blocks.append(PageBlock(text, tag, links=min(self._links, len(text))))
        self._pieces.clear()
        self._links = 0

    def _add_image(self, node: LexborNode) -> None:
        attributes = node.attributes
        sources: list[Mapping[str, str | None]] = [attributes]
        parent = node.parent
        if parent is not None and parent.tag == "picture":
            sources += [child.attributes for child in parent.iter() if child.tag == "source"]
        if any(attributes.get(side) in ("0", "1", "2") for side in ("width", "height")):
            return  # it counts visits or fills space
        if (url := _resolved(self._base, _largest(sources))) is not None:
            self._flush("img")
            alt = " ".join((attributes.get("alt") or "").split()) or None
            self.blocks.append(PageBlock("", "img", url=url, alt=alt))


def _part(tag: str, attributes: Mapping[str, str | None]) -> tuple[str | None, bool]:
    """Return the part of the page that an element is, None if nothing says so, and whether that is certain."""
    part = _PARTS.get(tag)
    if not attributes:
        return part or (tag if tag in ("main", "article") else None), tag not in ("header", "aside")
    if tag == "body":
        return None, False
    if _TELLING.isdisjoint(attributes):
        if part is not None or tag in ("main", "article"):
            return part or tag, tag not in ("header", "aside")
        return _part_of_names(attributes.get("id"), attributes.get("class")), False
    style = attributes.get("style")
    if "hidden" in attributes or attributes.get("aria-hidden") == "true":
        return "hidden", True
    if style and "display:none" in style[:_SEEN_OF_NAMES].replace(" ", "").lower():
        return "hidden", True
    role = attributes.get("role") or ""
    if role in _ROLES:
        return _ROLES[role], True
    if tag in ("main", "article") or role in ("main", "article"):
        return role if role in ("main", "article") else tag, True
    if attributes.get("itemprop") in ("articleBody", "mainContentOfPage"):
        return "article", True
    if part is not None:
        return part, tag not in ("header", "aside")
    return _part_of_names(attributes.get("id"), attributes.get("class")), False


@lru_cache(maxsize=4096)  # the elements of a page mostly have the same few names
def _part_of_names(own: str | None, classes: str | None) -> str | None:
    names = f"{own or ''} {classes or ''}"[:_SEEN_OF_NAMES].lower()
    words = names.replace("-", " ").replace("_", " ").split()
    if _FIRST_WORDS.isdisjoint(words) and not any(word in names for word in _BEGINNINGS):
        return None
    found = _NAMES.search(names)
    return found.lastgroup if found else None


def _largest(sources: list[Mapping[str, str | None]]) -> str | None:
    """Return the address of the largest image of ``srcset``, else ``src``, or what scripts load in its place."""
    best, widest = None, 0.0
    for attributes in sources:
        for candidate in re.split(r",\s+", _SIZES.sub(r"\1, ", _srcset(attributes))):
            address, _, size = candidate.strip().rstrip(",").partition(" ")
            number = _number(size.strip().rstrip("wxh,"))
            # a number with x is a factor and not a width: within one set they do not mix
            if address and not address.startswith("data:") and number > widest:
                best, widest = address, number
    if best is not None:
        return best
    own = sources[0]
    lazy = next((value for name in _LAZY if (value := own.get(name))), None)
    source = own.get("src")
    return lazy if lazy and (not source or source.startswith("data:") or "placeholder" in source) else source or lazy


def _srcset(attributes: Mapping[str, str | None]) -> str:
    return (attributes.get("srcset") or attributes.get("data-srcset") or "")[:20_000]


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
    if _ABSOLUTE.fullmatch(url):
        return url  # as urljoin leaves it
    try:
        absolute = urljoin(base, url).partition("#")[0]
    except ValueError:
        return None
    return absolute if absolute.startswith(("http://", "https://")) else None
