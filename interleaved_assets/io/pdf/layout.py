"""Lines of a page as paragraphs, and the place of its images among them."""

from collections.abc import Sequence
from typing import Final, NamedTuple

_GAP: Final = 0.7
"""Distance of two lines of one paragraph, at most, as a multiple of the height of a line."""
_TALLER: Final = 1.35
"""Ratio of the heights of two lines from which on they are no paragraph, as a heading and its text."""
_OVERLAP: Final = 0.3
"""Share of the narrower width that two boxes must share to stand in one column."""
_INDENTED: Final = 1.5
"""Indent of a first line, as a multiple of the height of a line, from which on it begins a paragraph."""


class Box(NamedTuple):
    """A rectangle of a page in points; the origin is at the bottom left, so ``top`` is the larger one."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def height(self) -> float:
        return self.top - self.bottom

    @property
    def middle(self) -> float:
        """Return the height of the middle."""
        return (self.top + self.bottom) / 2

    @property
    def area(self) -> float:
        return (self.right - self.left) * self.height

    def with_(self, other: "Box") -> "Box":
        """Return the smallest box that holds both."""
        pairs = zip(self, other, strict=True)
        left, bottom, right, top = (max(a, b) if at > 1 else min(a, b) for at, (a, b) in enumerate(pairs))
        return Box(left, bottom, right, top)

    def shares_column(self, other: "Box") -> bool:
        shared = min(self.right, other.right) - max(self.left, other.left)
        return shared >= _OVERLAP * max(min(self.right - self.left, other.right - other.left), 1e-6)


class Line(NamedTuple):
    """A line of text."""

    text: str
    box: Box


class Paragraph(NamedTuple):
    """Lines that belong together, as one text."""

    text: str
    box: Box


def paragraphs(lines: Sequence[Line]) -> list[Paragraph]:
    """Join the lines of a page, which are in reading order, to paragraphs.

    A line begins a paragraph if it stands in another column or above the line before, far below it, in another size, or
    indented. A hyphen at the end of a line is removed where the next line goes on in lower case.
    """
    groups: list[list[Line]] = []
    for line in lines:
        if groups and _goes_on(groups[-1], line):
            groups[-1].append(line)
        else:
            groups.append([line])
    return [_joined(group) for group in groups]


def _goes_on(group: Sequence[Line], line: Line) -> bool:
    last = group[-1].box
    height = max(min(last.height, line.box.height), 1e-6)
    gap = last.bottom - line.box.top
    is_same_size = max(last.height, line.box.height) <= _TALLER * height
    is_indented = len(group) > 1 and line.box.left - last.left > _INDENTED * height
    is_below = -0.5 * height <= gap <= _GAP * height
    return is_below and is_same_size and not is_indented and last.shares_column(line.box)


def _joined(group: Sequence[Line]) -> Paragraph:
    text, box = group[0].text, group[0].box
    for line in group[1:]:
        is_cut = text.endswith(("-", "\u00ad")) and text[-2:-1].isalpha() and line.text[:1].islower()
        text = text[:-1] + line.text if is_cut else f"{text} {line.text}"
        box = box.with_(line.box)
    return Paragraph(text, box)


def places(found: Sequence[Paragraph], images: Sequence[Box]) -> list[int]:
    """Return for each image the number of paragraphs that come before it.

    An image stands before the first paragraph of its column whose middle is below its own; without one, after the last
    paragraph of its column; on a page without a paragraph in its column, at the end.
    """
    numbers = []
    for image in images:
        middle = (image.top + image.bottom) / 2
        column = [at for at, paragraph in enumerate(found) if paragraph.box.shares_column(image)]
        below = [at for at in column if (found[at].box.top + found[at].box.bottom) / 2 < middle]
        numbers.append(below[0] if below else column[-1] + 1 if column else len(found))
    return numbers
