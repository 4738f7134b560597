"""Boxes of a page, the runs of a row as one line, and lines as paragraphs."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
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
_FIRST: Final = 0.6
"""Indent from which on it does so if the line before ends there and the line after stands at the margin again."""
_WIDEST_GAP: Final = 1.7
"""Distance of two lines of one paragraph on a page whose lines are far apart, at most, likewise."""
_ROOM: Final = 2.0
"""Free space after a line, beyond the first word of the next, from which on its end was set by the author, likewise."""
_MUCH_ROOM: Final = 1 / 3
"""Such space before a line in lower case, as a share of the width of the paragraph."""
_RECENT: Final = 50
"""Last lines of a paragraph that the next is compared with, so that the time does not grow with their square."""
_SPACE: Final = 0.15
"""Distance of two runs of a line from which on a space parts them, as a multiple of their height."""
_TURNED: Final = str.maketrans("()[]{}", ")(][}{")
_SENTENCE_END: Final = re.compile(r"[.!?:;\u2026\u3002][\"')\]\u201d\u2019\u00bb]*$")
BULLETS: Final = (
    r"[\u2022\u2023\u25aa\u25a0\u25cf\u25e6\u2219\u25cb\u25a1\u27a2\u2713\u2756"
    r"\uf06c\uf06e\uf076\uf0a7\uf0b7\uf0d8\uf0fc]"  # of Wingdings and Symbol, as office programs draw them
)
ITEM: Final = r"[\w(\[\"'\u2018\u201c\u00ab]"
"""The first character of the text of an item."""
_BULLET: Final = re.compile(rf"{BULLETS} ?{ITEM}")
_NUMBER: Final = re.compile(r"[\[(]?(\d{1,3})[.)\]] ?\D")
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
    lines, and so do lines that end before the next word had to, such as items of a list.
    """
    widest_gap = _widest_gap(lines)
    groups: list[list[Line]] = []
    for at, line in enumerate(lines):
        if groups and _goes_on(groups[-1][-_RECENT:], line, lines[at + 1 : at + 2], widest_gap):
            groups[-1].append(line)
        else:
            groups.append([line])
    return [_joined(group) for group in groups]


def _widest_gap(lines: Sequence[Line]) -> float:
    """Return the distance of lines of one paragraph, at most: more if hardly a line in lower case stands nearer."""
    widest = max((line.box.width for line in lines if not line.is_table), default=0.0)
    gaps = sorted(
        (last.box.bottom - line.box.top) / max(line.box.height, 1e-6)
        for last, line in pairwise(lines)
        if line.text[:1].islower() and last.box.width > widest / 2 and _is_one_size(last.box, line.box)
    )
    is_spaced = len(gaps) > 2 and gaps[len(gaps) // 4] > _GAP
    return min(gaps[len(gaps) // 4] + _FIRST / 2, _WIDEST_GAP) if is_spaced else _GAP


def _goes_on(group: Sequence[Line], line: Line, following: Sequence[Line], widest_gap: float) -> bool:
    last = group[-1].box
    if group[-1].is_table or line.is_table:
        return False
    if not _is_near(last, line.box, widest_gap) or not last.shares_column(line.box):
        return False
    return not _is_first(group, line, following, widest_gap)


def _is_one_size(one: Box, other: Box) -> bool:
    return max(one.height, other.height) <= _TALLER * max(min(one.height, other.height), 1e-6)


def _is_near(last: Box, box: Box, widest_gap: float) -> bool:
    height = max(min(last.height, box.height), 1e-6)
    return -0.5 * height <= last.bottom - box.top <= widest_gap * height and _is_one_size(last, box)


def _is_first(group: Sequence[Line], line: Line, following: Sequence[Line], widest_gap: float) -> bool:
    """Return whether a line is indented after one that ends a paragraph; a hanging indent comes after a full line."""
    last, height = group[-1], max(min(group[-1].box.height, line.box.height), 1e-6)
    indent = line.box.left - last.box.left
    if indent < _FIRST * height:
        return False
    after = [one.box for one in following if _is_near(line.box, one.box, widest_gap)]
    reach = max(box.right for box in [line.box, *after, *(one.box for one in group)])
    is_short = last.box.right < reach - _ROOM * height
    is_end = _SENTENCE_END.search(last.text) is not None
    if len(group) > 1 and indent > _INDENTED * height:
        if _BULLET.match(last.text) or _number(last.text):
            return last.box.right + _first_word(line) < reach - _ROOM * height
        is_hanging = any(abs(one.box.left - line.box.left) < _FIRST / 2 * height for one in group)
        return is_short or is_end or not is_hanging
    if not after:
        return is_short and is_end
    is_back = abs(after[0].left - last.box.left) < _FIRST / 2 * height
    return is_back and (is_short or is_end)


def _joined(group: Sequence[Line]) -> Paragraph:
    text = group[0].text
    lefts, bottoms, rights, tops = zip(*(line.box for line in group), strict=True)
    whole = Box(min(lefts), min(bottoms), max(rights), max(tops))
    number = _number(text)
    for before, (last, line) in zip((None, *rights), pairwise(group), strict=False):
        own = _number(line.text)
        is_item = _BULLET.match(line.text) is not None or own == number + 1 > 1
        number = own or number
        is_row = max(last.cells, line.cells) > 2 or min(last.cells, line.cells) > 1
        is_ended = is_row or is_item or _is_ended(last, line, whole, before)
        parting = "\n" if is_ended else _space_between(text, line.text)
        text = text[:-1] + line.text if _is_cut(text, line.text) else f"{text}{parting}{line.text}"
    return Paragraph(_with_brackets(text), whole, is_table=group[0].is_table)


def _number(text: str) -> int:
    """Return the number of an item of a list or of references, 0 if a text does not begin with one."""
    found = _NUMBER.match(text)
    return int(found[1]) if found else 0


def _is_ended(last: Line, line: Line, whole: Box, before: float | None) -> bool:
    """Return whether a line ends although the next word has room, unless it is centred or stands beside an image.

    Lines beside an image end at the same place as the one before or after.
    """
    height = line.box.height
    room = whole.right - last.box.right
    if room < _ROOM * height or RIGHT_TO_LEFT.search(line.text):
        return False
    is_centred = all(abs(box.left + box.right - whole.left - whole.right) < height for box in (last.box, line.box))
    is_even = any(abs(last.box.right - right) < height / 10 for right in (before, line.box.right) if right is not None)
    if is_centred or is_even:
        return False
    least = _MUCH_ROOM * whole.width if line.text[:1].islower() else _ROOM * height
    return room - _first_word(line) > least


def _first_word(line: Line) -> float:
    """Return about the width of the first word of a line."""
    letters = 1 if _has_no_spaces(line.text[:1]) else len(line.text.split(maxsplit=1)[0]) if line.text.strip() else 0
    return line.box.width * letters / max(len(line.text), 1)


def _with_brackets(text: str) -> str:
    """Return right-to-left text with its brackets turned if each is closed only so, as in PDF files of browsers."""
    turned = text.translate(_TURNED)
    return turned if RIGHT_TO_LEFT.search(text) and not _is_closed(text) and _is_closed(turned) else text


def _is_closed(text: str) -> bool:
    depths = [*accumulate((character in "([{") - (character in ")]}") for character in text)]
    return not depths or (min(depths) >= 0 and depths[-1] == 0)


def joined_lines(lines: Sequence[Line]) -> str:
    """Return the lines of a cell as one text."""
    text = ""
    for line in lines:
        text = text[:-1] + line.text if _is_cut(text, line.text) else text + _space_between(text, line.text) + line.text
    return text.strip()


def has_letters(lines: Iterable[Line]) -> bool:
    """Return whether any of the lines has a letter; figures, signs and dashes are none."""
    return any(map(str.isalpha, "".join(line.text for line in lines)))


def is_wrapped(lines: Sequence[Line]) -> bool:
    """Return whether the lines of a cell are of one text: some have several words, none had room a line above."""
    widest, height = max(line.box.width for line in lines), lines[0].box.height
    has_words = any(_first_word(line) < line.box.width for line in lines if has_letters([line]))
    return has_words and all(last.box.width + _first_word(line) > widest - height for last, line in pairwise(lines))


def _is_cut(text: str, following: str) -> bool:
    """Return whether the hyphen at the end of a line parts a word that goes on in the next."""
    return text.endswith(("-", "\u00ad")) and text[-2:-1].isalpha() and following[:1].islower()


def _space_between(text: str, following: str) -> str:
    """Return what parts two lines of one text: nothing between characters of Chinese and Japanese, else a space."""
    return "" if _has_no_spaces(text[-1:]) and _has_no_spaces(following[:1]) else " "


def _has_no_spaces(character: str) -> bool:
    is_wide = character != "" and unicodedata.east_asian_width(character) in "FWH"
    return is_wide and not unicodedata.name(character, "").startswith("HANGUL")
