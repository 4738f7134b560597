"""Runs of a page as paragraphs in reading order, and the place of its images among them."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import accumulate, chain, pairwise
from statistics import median
from typing import Final, NamedTuple

_GAP: Final = 0.7
"""Distance of two lines of one paragraph, at most, as a multiple of the height of a line."""
_TALLER: Final = 1.35
"""Ratio of the heights of two lines from which on they are no paragraph, as a heading and its text."""
_OVERLAP: Final = 0.3
"""Share of the narrower width that two boxes must share to stand in one column."""
_INDENTED: Final = 1.5
"""Indent of a first line, as a multiple of the height of a line, from which on it begins a paragraph."""
_GUTTER: Final = 0.7
"""Least width of the space between columns, as a multiple of the height of a line."""
_WIDE: Final = 1.0
"""Width from which on such a space is none between sentences, likewise."""
_BESIDE: Final = 0.5
"""Share of the lower height that two boxes must share to stand in one line."""
_SPACE: Final = 0.15
"""Distance of two runs of a line from which on a space parts them, as a multiple of their height."""
_LEAST_LINES: Final = 3
"""Lines of a column of prose."""
_LEAST_WIDTH: Final = 8
"""Width of a column of prose, as a multiple of the height of a line."""
_FILLED: Final = 0.6
"""Share of a column of prose that its middle line fills."""
_FULL: Final = 0.8
"""Share of the cells of a table without lines that have text, at least."""
_FAR: Final = 2.5
"""Distance of two rows from which on they are not of one group, as a multiple of the height of a line."""
_PITCH: Final = 1.8
"""Distance of the lines of prose, at most, as a multiple of their height; rows of forms are further apart."""
_MOST_LEVELS: Final = 20
_RTL: Final = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
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


class _Span(NamedTuple):
    left: float
    right: float


def reading_order(runs: Sequence[Line]) -> list[Line]:
    """Return the lines of a page in the order in which they are read.

    Lines above one another that leave the same vertical strip free are columns if they look like prose, or stand in the
    file one column after the other; each is read to its end. What crosses the strip, such as a title, comes before or
    after. Everything else is read row by row, and is a table if its rows leave two strips free.
    """
    heights = [run.box.height for run in runs if not run.is_table]
    return list(_ordered(list(enumerate(runs)), max(median(heights), 1e-6) if heights else 1.0, 0))


_Numbered = list[tuple[int, Line]]
"""Runs with their place in the file."""


def _ordered(runs: _Numbered, height: float, level: int) -> Iterator[Line]:
    for rows, gutters in _groups(_rows(runs), height):
        found = _columns(rows, gutters, height) if gutters and level < _MOST_LEVELS else None
        if found is None:
            yield from _row_by_row(rows, height, level)
        else:
            for column in found:
                yield from _ordered(column, height, level + 1)


def _row_by_row(rows: list[_Numbered], height: float, level: int) -> Iterator[Line]:
    table = _table(rows, height)
    if table is not None:
        yield table
        return
    for row in rows:
        tables = [numbered for numbered in row if numbered[1].is_table]
        if tables and len(row) > 1 and level < _MOST_LEVELS:
            left = [numbered for numbered in row if numbered[1].box.left < tables[0][1].box.left]
            right = [numbered for numbered in row if numbered not in left and numbered is not tables[0]]
            yield from _ordered(left, height, level + 1)
            yield tables[0][1]
            yield from _ordered(right, height, level + 1)
        else:
            yield _line(row, height)


def _rows(runs: _Numbered) -> list[_Numbered]:
    """Return runs that stand beside one another, from the top to the bottom."""
    rows: list[_Numbered] = []
    spans: list[tuple[float, float]] = []
    for numbered in sorted(runs, key=lambda numbered: (-numbered[1].box.middle, numbered[1].box.left)):
        box = numbered[1].box
        if rows:
            bottom, top = spans[-1]
            shared = min(top, box.top) - max(bottom, box.bottom)
            if shared >= _BESIDE * min(top - bottom, box.height):
                rows[-1].append(numbered)
                if box.height < top - bottom or len(rows[-1]) == 1:
                    spans[-1] = (bottom, top)
                continue
        rows.append([numbered])
        spans.append((box.bottom, box.top))
    return rows


def _groups(rows: list[_Numbered], height: float) -> Iterator[tuple[list[_Numbered], list[_Span]]]:
    """Yield rows that follow one another with the strips that they all leave free between their runs.

    A row far below the one before begins a group. So does a row that closes a strip, and it takes those rows above it
    along that leave its own strips free.
    """
    group: list[list[_Span]] = []
    first = 0
    filled: list[_Span] = []
    for at, row in enumerate(rows):
        own = _joined_spans([_Span(run.box.left, run.box.right) for _, run in row], height)
        both = _joined_spans([*filled, *own], height)
        if group and _is_far(rows[at - 1], row, height):
            yield rows[first:at], _gutters(filled)
            group, first, both = [], at, own
        elif group and not _keeps(both, _lasting(filled, height) or _gutters(own)):
            taken, both = 0, own
            while len(own) > 1 and taken < len(group):
                above = _joined_spans([*both, *group[-1 - taken]], height)
                if not _keeps(above, _gutters(both)):
                    break
                taken, both = taken + 1, above
            if taken < len(group):
                group, kept = group[len(group) - taken :], group[: len(group) - taken]
                yield rows[first : at - taken], _gutters(_joined_spans([span for one in kept for span in one], height))
                first = at - taken
        group.append(own)
        filled = both
    if group:
        yield rows[first:], _gutters(filled)


def _is_far(above: _Numbered, row: _Numbered, height: float) -> bool:
    return min(run.box.bottom for _, run in above) - max(run.box.top for _, run in row) > _FAR * height


def _lasting(filled: list[_Span], height: float) -> list[_Span]:
    """Return the strips that do not look like the space after a sentence; all if all do."""
    strips = _gutters(filled)
    return [strip for strip in strips if strip.right - strip.left >= _WIDE * height] or strips


def _keeps(filled: list[_Span], strips: list[_Span]) -> bool:
    """Return whether a part of each strip is still free."""
    free = _gutters(filled)
    return all(any(min(one.right, other.right) > max(one.left, other.left) for other in free) for one in strips)


def _joined_spans(spans: list[_Span], height: float) -> list[_Span]:
    """Return the spans with those joined between which there is less than a gutter."""
    joined: list[_Span] = []
    for span in sorted(spans):
        if joined and span.left - joined[-1].right < _GUTTER * height:
            joined[-1] = _Span(joined[-1].left, max(joined[-1].right, span.right))
        else:
            joined.append(span)
    return joined


def _gutters(filled: list[_Span]) -> list[_Span]:
    return [_Span(one.right, other.left) for one, other in pairwise(filled)]


def _by_column(row: _Numbered, gutters: list[_Span]) -> list[_Numbered]:
    columns: list[_Numbered] = [[] for _ in range(len(gutters) + 1)]
    for numbered in row:
        columns[sum(numbered[1].box.left >= gutter.right for gutter in gutters)].append(numbered)
    return columns


def _columns(rows: list[_Numbered], gutters: list[_Span], height: float) -> list[_Numbered] | None:
    """Return the parts of the rows that are read one after the other, None if the rows are no columns of prose.

    Rows above the columns that are on the left alone come first, and those below on the right alone last: the order is
    the same, and they may be a table. So do those below on the left if they do in a file that goes by columns.
    """
    both = [at for at, row in enumerate(rows) if sum(map(bool, _by_column(row, gutters))) > 1]
    if not both:
        return None
    before, after = rows[: both[0]], rows[both[-1] + 1 :]
    between = rows[both[0] : both[-1] + 1]
    columns = _by_column([*chain.from_iterable(between)], gutters)
    places = _columns_in_file(columns)
    is_by_columns = sum(one != other for one, other in pairwise(places)) < len(columns)
    last = max(number for column in columns for number, _ in column)
    is_after = all(_by_column(row, gutters)[-1] == row for row in after) or (
        is_by_columns and all(number > last for row in after for number, _ in row)
    )
    if not all(_by_column(row, gutters)[0] == row for row in before):
        between, before = before + between, []
    if not is_after:
        between, after = between + after, []
    columns = [column for column in _by_column([*chain.from_iterable(between)], gutters) if column]
    if not all(_is_prose(column, height) for column in columns):
        is_long = all(len(_rows(column)) >= _LEAST_LINES for column in columns)
        if not (is_long and is_by_columns):
            return None
    return [part for part in ([*chain.from_iterable(before)], *columns, [*chain.from_iterable(after)]) if part]


def _columns_in_file(columns: list[_Numbered]) -> list[int]:
    """Return the column of each run in the order of the file."""
    return [at for _, at in sorted((number, at) for at, column in enumerate(columns) for number, _ in column)]


def _is_prose(column: _Numbered, height: float) -> bool:
    rows = _rows(column)
    if any(run.is_table for _, run in column):
        return True
    width = max(run.box.right for _, run in column) - min(run.box.left for _, run in column)
    widths = [max(run.box.right for _, run in row) - min(run.box.left for _, run in row) for row in rows]
    if len(rows) < _LEAST_LINES or width < _LEAST_WIDTH * height or median(widths) < _FILLED * width:
        return False
    return median(one[0][1].box.middle - other[0][1].box.middle for one, other in pairwise(rows)) <= _PITCH * height


def _table(rows: list[_Numbered], height: float) -> Line | None:
    """Return rows that leave two strips free as a table; a row without its first cell goes on with the one before."""
    runs = [run for row in rows for _, run in row]
    gutters = _gutters(_joined_spans([_Span(run.box.left, run.box.right) for run in runs], height))
    if len(gutters) < 2 or len(rows) < _LEAST_LINES or any(run.is_table for run in runs):
        return None
    cells = [[_line(cell, height).text if cell else "" for cell in _by_column(row, gutters)] for row in rows]
    lines: list[list[str]] = []
    for row in cells:
        if lines and not row[0]:
            lines[-1] = [f"{above} {cell}".strip() for above, cell in zip(lines[-1], row, strict=True)]
        else:
            lines.append(row)
    filled = sum(cell != "" for row in lines for cell in row)
    if len(lines) < max(_LEAST_LINES, len(rows) / 2) or filled < _FULL * len(lines) * len(lines[0]):
        return None
    return Line(as_markdown(lines), reduce(Box.with_, (run.box for run in runs)), is_table=True)


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose first row is its head."""
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def _line(row: _Numbered, height: float) -> Line:
    """Return the runs of a row as one line, from right to left if it is written so."""
    runs = sorted((run for _, run in row), key=lambda run: run.box.left)
    if len(runs) == 1:
        return runs[0]
    if any(_RTL.search(run.text) for run in runs):
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
        return [_line(list(enumerate(phrase)), height) for phrase in phrases]
    found: list[Line] = []
    for phrase in reversed(phrases):
        has_words = any(_letters(run.text)[1] for run in phrase)
        for run in [_line(list(enumerate(phrase)), height)] if has_words else reversed(phrase):
            found.append(run if _RTL.search(run.text) else run._replace(text=_SIGNS.sub(r"\3\2\1", run.text)))
    return found


def _letters(text: str) -> tuple[int, int]:
    """Return the number of characters of right-to-left scripts, and of other letters."""
    return len(_RTL.findall(text)), sum(map(str.isalpha, _RTL.sub("", text)))


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
    return turned if _RTL.search(text) and not _is_closed(text) and _is_closed(turned) else text


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


def places(found: Sequence[Paragraph], images: Sequence[Box]) -> list[int]:
    """Return for each image the number of paragraphs that come before it.

    An image stands before the first paragraph of its column whose middle is below its own; without one, after the last
    paragraph of its column; on a page without a paragraph in its column, at the end.
    """
    numbers = []
    for image in images:
        column = [at for at, paragraph in enumerate(found) if paragraph.box.shares_column(image)]
        below = [at for at in column if found[at].box.middle < image.middle]
        numbers.append(below[0] if below else column[-1] + 1 if column else len(found))
    return numbers
