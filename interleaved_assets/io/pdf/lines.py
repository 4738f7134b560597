"""Boxes of a page, the runs of a row as one line, and lines as paragraphs."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from interleaved_assets.io.pdf.right_to_left import RIGHT_TO_LEFT

_GAP: Final = 0.7
"""Distance of two lines of one paragraph, at most, as a multiple of the height of a line."""
_TALLER: Final = 1.35
"""Ratio of the heights of two lines from which on they are no paragraph, as a heading and its text."""
_OVERLAP: Final = 0.3
"""Share of the narrower width that two boxes must share to stand in one column."""
_INDENTED: Final = 1.5
"""Indent of a first line, as a multiple of the height of a line, from which on it begins a paragraph."""
_SPACE: Final = 0.15
"""Distance of two runs of a line from which on a space parts them, as a multiple of their height."""
_TURNED: Final = str.maketrans("()[]{}", ")(][}{")
_SIGNS: Final = re.compile(r"^([.,:;!?]*)(.*?)((?<=[\d%])-)?$", re.DOTALL)


class Box(NamedTuple):
    """A rectangle of a page in points; the origin is at the bottom left, so ``top`` is the larger one."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def height(self) -> float:
        return self.top - self.bottom

    @property
    def middle(self) -> float:
        """Return the height of the middle."""
        return (self.top + self.bottom) / 2

    @property
    def area(self) -> float:
        return self.width * self.height

    def with_(self, other: "Box") -> "Box":
        """Return the smallest box that holds both."""
        return Box(
            min(self.left, other.left),
            min(self.bottom, other.bottom),
            max(self.right, other.right),
            max(self.top, other.top),
        )

    def meets(self, other: "Box") -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.bottom < other.top and other.bottom < self.top

    def shares_column(self, other: "Box") -> bool:
        shared = min(self.right, other.right) - max(self.left, other.left)
        return shared >= _OVERLAP * max(min(self.width, other.width), 1e-6)


class Line(NamedTuple):
    """A run of text, a line of runs, or a table."""

    text: str
    box: Box
    is_table: bool = False
    cells: int = 1
    """Parts between which there are wide spaces, as the cells of a table."""


class Paragraph(NamedTuple):
    """Lines that belong together, as one text."""

    text: str
    box: Box
    is_table: bool = False


def joined_line(row: Iterable[Line], height: float) -> Line:
    """Return the runs of a row, at least one, as one line, from right to left if it is written so."""
    runs = sorted(row, key=lambda run: run.box.left)
    if len(runs) == 1:
        return runs[0]
    if any(RIGHT_TO_LEFT.search(run.text) for run in runs):
        runs = _as_read(runs, height)
    text, box, cells = runs[0].text, runs[0].box, 1
    for run in runs[1:]:
        gap = max(run.box.left - box.right, box.left - run.box.right)
        text = f"{text} {run.text}" if gap > _SPACE * height else text + run.text
        cells += gap > _INDENTED * height
        box = box.with_(run.box)
    widest = max(runs, key=lambda run: run.box.width).box
    return Line(text, Box(box.left, widest.bottom, box.right, widest.top), cells=cells)


def _as_read(runs: list[Line], height: float) -> list[Line]:
    """Return the runs of a line with right-to-left text in the order in which they are read.

    Words that stand side by side and are read in the other direction than the line are one phrase. Signs of a
    right-to-left line that are drawn with a word of another script, or with a number, belong to its other side.
    """
    letters = [_letters(run.text) for run in runs]
    ends = [right > left for right, left in letters if right or left]
    rights, lefts = (sum(count) for count in zip(*letters, strict=True))
    is_right_to_left = ends[0] if ends[0] == ends[-1] else rights > lefts
    phrases: list[list[Line]] = []
    goes_on = False
    for run, (right, left) in zip(runs, letters, strict=True):
        is_other = right == 0 if is_right_to_left else right > left
        is_near = bool(phrases) and run.box.left - phrases[-1][-1].box.right <= _INDENTED * height
        if goes_on and is_other and is_near:
            phrases[-1].append(run)
        else:
            phrases.append([run])
        goes_on = is_other
    if not is_right_to_left:
        return [joined_line(phrase, height) for phrase in phrases]
    found: list[Line] = []
    for phrase in reversed(phrases):
        has_words = any(_letters(run.text)[1] for run in phrase)
        for run in [joined_line(phrase, height)] if has_words else reversed(phrase):
            found.append(run if RIGHT_TO_LEFT.search(run.text) else run._replace(text=_SIGNS.sub(r"\3\2\1", run.text)))
    return found


def _letters(text: str) -> tuple[int, int]:
    """Return the number of characters of right-to-left scripts, and of other letters."""
    return len(RIGHT_TO_LEFT.findall(text)), sum(map(str.isalpha, RIGHT_TO_LEFT.sub("", text)))


def paragraphs(lines: Sequence[Line]) -> list[Paragraph]:
    """Join the lines of a page, which are in reading order, to paragraphs.

    A line begins a paragraph if it stands in another column or above the line before, far below it, in another size, or
    indented. A hyphen at the end of a line is removed where the next line goes on in lower case. Rows of cells stay
    lines.
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
    if group[-1].is_table or line.is_table:
        return False
    height = max(min(last.height, line.box.height), 1e-6)
    gap = last.bottom - line.box.top
    is_same_size = max(last.height, line.box.height) <= _TALLER * height
    is_indented = len(group) > 1 and line.box.left - last.left > _INDENTED * height
    is_below = -0.5 * height <= gap <= _GAP * height
    return is_below and is_same_size and not is_indented and last.shares_column(line.box)


def _joined(group: Sequence[Line]) -> Paragraph:
    text, box = group[0].text, group[0].box
    for last, line in pairwise(group):
        is_cut = text.endswith(("-", "\u00ad")) and text[-2:-1].isalpha() and line.text[:1].islower()
        is_row = max(last.cells, line.cells) > 2 or min(last.cells, line.cells) > 1
        parting = "\n" if is_row else _space_between(text, line.text)
        text = text[:-1] + line.text if is_cut else f"{text}{parting}{line.text}"
        box = box.with_(line.box)
    return Paragraph(_with_brackets(text), box, is_table=group[0].is_table)


def _with_brackets(text: str) -> str:
    """Return right-to-left text with its brackets turned if each is closed only so, as in PDF files of browsers."""
    turned = text.translate(_TURNED)
    return turned if RIGHT_TO_LEFT.search(text) and not _is_closed(text) and _is_closed(turned) else text


def _is_closed(text: str) -> bool:
    depths = [*accumulate((character in "([{") - (character in ")]}") for character in text)]
    return not depths or (min(depths) >= 0 and depths[-1] == 0)


def joined_lines(lines: Sequence[Line]) -> str:
    """Return the lines of a cell as one text."""
    return reduce(lambda text, line: text + _space_between(text, line.text) + line.text, lines, "").strip()


def _space_between(text: str, following: str) -> str:
    """Return what parts two lines of one text: nothing between characters of Chinese and Japanese, else a space."""
    return "" if _has_no_spaces(text[-1:]) and _has_no_spaces(following[:1]) else " "


def _has_no_spaces(character: str) -> bool:
    is_wide = character != "" and unicodedata.east_asian_width(character) in "FWH"
    return is_wide and not unicodedata.name(character, "").startswith("HANGUL")
