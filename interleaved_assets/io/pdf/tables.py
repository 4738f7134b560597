"""Tables of a page that are drawn with lines, as Markdown."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from ctypes import byref, c_float, c_int
from itertools import pairwise
from statistics import median
from typing import Any, Final, NamedTuple

import pypdfium2.raw as raw

from interleaved_assets.io.pdf.layout import as_markdown, reading_order
from interleaved_assets.io.pdf.lines import Box, Line, has_letters, is_wrapped, joined_lines
from interleaved_assets.io.pdf.objects import Matrix, object_box, object_matrix, page_objects

_THIN: Final = 2.0
"""Width of a line in points, at most; lines that are closer are one."""
_SHORTEST: Final = 6.0
_MOST_SEGMENTS: Final = 60
"""Segments of a path that may be lines of a table; one of more is a drawing."""
_MOST_RULES: Final = 400
"""Lines in a direction; a page with more is a drawing."""
_MOST_CELLS: Final = 5000
_DRAWN: Final = 0.75
"""Share of the sides of the places of a grid that are drawn, at least; a grid with fewer is the axes of a plot."""
_HIGHEST_ROW: Final = 144.0
"""Height of a row of a table without outer sides, at most; a higher one is text in columns with lines between them."""
_FILLED: Final = 0.4
"""Share of the cells that have text, at least; a grid with fewer is a drawing or a form."""
_LEAST_LEVEL: Final = 3
"""Least number of rows that no line parts."""


class Rules(NamedTuple):
    """Lines of a page, as thin boxes."""

    level: list[Box]
    upright: list[Box]


def page_rules(page: Any, turn: Matrix) -> Rules:
    """Return the level and upright lines of a page, turned by ``turn``, those that touch end to end joined."""
    level: list[Box] = []
    upright: list[Box] = []
    for item, outer in page_objects(page, (raw.FPDF_PAGEOBJ_PATH,), turn):
        box = object_box(item, outer)
        if max(box.width, box.height) < _SHORTEST:
            continue
        if min(box.width, box.height) <= _THIN:
            (level if box.width > box.height else upright).append(box)
        elif _is_stroked(item) and raw.FPDFPath_CountSegments(item) <= _MOST_SEGMENTS:
            for side in _sides(item, object_matrix(item).then(outer)):
                if min(side.width, side.height) <= _THIN and max(side.width, side.height) >= _SHORTEST:
                    (level if side.width > side.height else upright).append(side)
    level, upright = _end_to_end(level), [_turned(box) for box in _end_to_end([_turned(box) for box in upright])]
    return Rules(level, upright) if max(len(level), len(upright)) <= _MOST_RULES else Rules([], [])


def _is_stroked(item: Any) -> bool:
    fill, stroke = c_int(), c_int()
    return bool(raw.FPDFPath_GetDrawMode(item, byref(fill), byref(stroke)) and stroke.value)


def _sides(item: Any, matrix: Matrix) -> Iterator[Box]:
    """Yield the straight segments of a path."""
    x, y = c_float(), c_float()
    start = last = (0.0, 0.0)
    for at in range(raw.FPDFPath_CountSegments(item)):
        segment = raw.FPDFPath_GetPathSegment(item, at)
        raw.FPDFPathSegment_GetPoint(segment, byref(x), byref(y))
        point = matrix.point(x.value, y.value)
        kind = raw.FPDFPathSegment_GetType(segment)
        if kind == raw.FPDF_SEGMENT_BEZIERTO:
            return  # a drawing
        if kind == raw.FPDF_SEGMENT_MOVETO:
            start = point
        elif kind == raw.FPDF_SEGMENT_LINETO:
            yield _between(last, point)
        last = point
        if raw.FPDFPathSegment_GetClose(segment):
            yield _between(last, start)


def _between(one: tuple[float, float], other: tuple[float, float]) -> Box:
    return Box(min(one[0], other[0]), min(one[1], other[1]), max(one[0], other[0]), max(one[1], other[1]))


def _turned(box: Box) -> Box:
    return Box(box.bottom, box.left, box.top, box.right)


def _end_to_end(level: list[Box]) -> list[Box]:
    """Return level lines with those joined that continue one another."""
    joined: list[Box] = []
    for box in sorted(level, key=lambda box: (round(box.middle / _THIN), box.left)):
        last = joined[-1] if joined else None
        if last and abs(last.middle - box.middle) <= _THIN and box.left <= last.right + _THIN:
            joined[-1] = Box(last.left, last.bottom, max(last.right, box.right), last.top)
        else:
            joined.append(box)
    return joined


def ruled_tables(rules: Rules, runs: Sequence[Line]) -> list[Line]:
    """Return the runs with those inside of a table replaced by it."""
    left = list(runs)
    for grid in _grids(rules):
        inside = [run for run in left if _holds(grid.box, run.box)]
        table = grid.table(inside)
        if table is not None:
            left = [run for run in left if not _holds(grid.box, run.box)] + [table]
    return left


def _holds(box: Box, run: Box) -> bool:
    return box.left <= (run.left + run.right) / 2 <= box.right and box.bottom <= run.middle <= box.top


def _grids(rules: Rules) -> Iterator["_Grid"]:
    """Yield groups of lines that cross or touch one another, with two rows and columns at least."""
    parts: dict[int, set[int]] = {}
    group_of: dict[int, int] = {}
    offset = len(rules.level)
    for at, line in enumerate(rules.level):
        for number, post in enumerate(rules.upright, start=offset):
            if (
                line.left - _THIN <= post.left <= line.right + _THIN
                and post.bottom - _THIN <= line.middle <= post.top + _THIN
            ):
                one, other = group_of.setdefault(at, at), group_of.setdefault(number, number)
                members = parts.pop(one, {at}) | parts.pop(other, {number})
                parts[one] = members
                group_of.update(dict.fromkeys(members, one))
    for members in parts.values():
        level = [rules.level[at] for at in members if at < offset]
        upright = [rules.upright[at - offset] for at in members if at >= offset]
        if max(len(level), len(upright)) > 2:  # fewer are the axes of a plot
            level, upright = _with_open_sides(level, upright)
        rows, columns = _distinct([line.middle for line in level]), _distinct([post.left for post in upright])
        if len(rows) > 2 and len(columns) > 2 and len(rows) * len(columns) <= _MOST_CELLS:
            yield _Grid(rows[::-1], columns, Rules(level, upright))


def _with_open_sides(level: list[Box], upright: list[Box]) -> tuple[list[Box], list[Box]]:
    """Return the lines of a table with the sides that are not drawn; those of a page in columns are as they were."""
    ends = _open_sides([_turned(post) for post in upright], [_turned(line) for line in level])
    closed = [*level, *map(_turned, ends)]
    heights = (above - below for below, above in pairwise(_distinct([line.middle for line in closed])))
    if max(heights, default=0.0) > _HIGHEST_ROW:
        return level, upright
    return closed, [*upright, *_open_sides(level, upright)]


def _open_sides(level: list[Box], upright: list[Box]) -> list[Box]:
    """Return the left and right side of a table that has no lines there: most of its level lines end at one place."""
    bottom, top = min(post.bottom for post in upright), max(post.top for post in upright)
    sides = []
    for ends, is_outside in (
        ([line.left for line in level], min(post.left for post in upright).__gt__),
        ([line.right for line in level], max(post.left for post in upright).__lt__),
    ):
        end = median(ends)
        is_common = sum(abs(one - end) <= 2 * _THIN for one in ends) >= _DRAWN * len(ends)
        if is_common and all(is_outside(end + shift) for shift in (-_SHORTEST, _SHORTEST)):
            sides.append(Box(end, bottom, end, top))
    return sides


def _distinct(places: list[float]) -> list[float]:
    found: list[float] = []
    for place in sorted(places):
        if not found or place - found[-1] > 2 * _THIN:
            found.append(place)
    return found


def _level_rows(cells: Sequence[Sequence[Line]]) -> list[Sequence[Sequence[Line]]]:
    """Return the cells of a row as rows without lines between them, if their lines stand beside one another.

    Lines of a few cells stand so by chance, too. Cells of prose stay whole, unless a cell beside them has only numbers.
    """
    filled = [lines for lines in cells if lines]
    count = len(filled[0]) if len(filled) > 1 else 0
    if count < _LEAST_LEVEL or count * len(filled) < _LEAST_LEVEL**2 or any(len(lines) != count for lines in filled):
        return [cells]
    has_numbers = not all(map(has_letters, filled))
    if any(map(is_wrapped, filled)) and not has_numbers:
        return [cells]
    rows = zip(*filled, strict=True)
    if any(abs(one.box.middle - line.box.middle) > one.box.height / 3 for one, *others in rows for line in others):
        return [cells]
    return [[lines[at : at + 1] for lines in cells] for at in range(count)]


class _Grid(NamedTuple):
    rows: list[float]
    """Heights of the level lines from the top to the bottom."""
    columns: list[float]
    rules: Rules

    @property
    def box(self) -> Box:
        return Box(self.columns[0], self.rows[-1], self.columns[-1], self.rows[0])

    def table(self, inside: Sequence[Line]) -> Line | None:
        """Return the runs as a table in Markdown; a cell over several places stands in the first of them."""
        drawn, first = self._first_places()
        if drawn < _DRAWN:
            return None
        cells: dict[tuple[int, int], list[Line]] = defaultdict(list)
        for run in inside:
            row = sum(run.box.middle < height for height in self.rows[1:-1])
            column = sum((run.box.left + run.box.right) / 2 > place for place in self.columns[1:-1])
            cells[first[row, column]].append(run)
        if len(cells) < _FILLED * len(set(first.values())) or len({row for row, _ in cells}) < 2:
            return None
        texts: list[list[str]] = []
        for row in range(len(self.rows) - 1):
            lines = [reading_order(cells.get((row, column), ())) for column in self._places()]
            texts += [list(map(joined_lines, one)) for one in _level_rows(lines)]
        return Line(as_markdown(texts), self.box, is_table=True)

    def _places(self) -> range:
        return range(len(self.columns) - 1)

    def _first_places(self) -> tuple[float, dict[tuple[int, int], tuple[int, int]]]:
        """Return for each place of the grid the first place of its cell, and which share of all sides is drawn.

        Two places are one cell if no line parts them.
        """
        first: dict[tuple[int, int], tuple[int, int]] = {}
        drawn = 0
        for row, (top, bottom) in enumerate(pairwise(self.rows)):
            for column, (left, right) in enumerate(pairwise(self.columns)):
                has_left, has_top = self._is_upright(left, top, bottom), self._is_level(top, left, right)
                drawn += has_left + has_top
                if column and not has_left:
                    first[row, column] = first[row, column - 1]
                elif row and not has_top:
                    first[row, column] = first[row - 1, column]
                else:
                    first[row, column] = (row, column)
        return drawn / (2 * len(first)), first

    def _is_upright(self, place: float, top: float, bottom: float) -> bool:
        middle = (top + bottom) / 2
        return any(
            abs(post.left - place) <= 2 * _THIN and post.bottom <= middle <= post.top for post in self.rules.upright
        )

    def _is_level(self, height: float, left: float, right: float) -> bool:
        across = (left + right) / 2
        return any(
            abs(line.middle - height) <= 2 * _THIN and line.left <= across <= line.right for line in self.rules.level
        )
