"""The reading order of the runs of a page, its columns and tables without lines, and the place of its images."""

import re
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import chain, pairwise
from statistics import median
from typing import Final, NamedTuple

from interleaved_assets.io.pdf.lines import BULLETS, ITEM, Box, Line, Paragraph, has_letters, joined_line

_GUTTER: Final = 0.7
"""Least width of the space between columns, as a multiple of the height of a line."""
_WIDE: Final = 1.0
"""Width from which on such a space is none between sentences, likewise."""
_BESIDE: Final = 0.5
"""Share of the lower height that two boxes must share to stand in one line."""
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
_LEAST_BOXED: Final = 2
"""Lines of a column that is a box: it has letters, stands beside another, and the file has it before or after that."""
_CHANGES: Final = 1 / 6
"""Changes of the column in a file that goes by columns, at most, as a share of the rows; a table has more."""
_BULLET: Final = re.compile(BULLETS)
_ITEM: Final = re.compile(ITEM)
_BULLET_GAP: Final = 4.0
"""Distance of an item from its bullet, at most, as a multiple of its height."""
_MOST_LEVELS: Final = 20


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
    return list(_ordered(list(enumerate(_with_bullets(runs))), max(median(heights), 1e-6) if heights else 1.0, 0))


def _with_bullets(runs: Sequence[Line]) -> list[Line]:
    """Return the runs with each bullet joined to its item, so that the space between them is none between columns."""
    found: list[Line] = []
    for run in runs:
        if found and _ITEM.match(run.text) and not run.is_table and _is_bullet_of(run, found):
            found[-1] = joined_line((found[-1], run), run.box.height)._replace(cells=1)
        else:
            found.append(run)
    return found


def _is_bullet_of(item: Line, before: Sequence[Line]) -> bool:
    """Return whether the last run before is a bullet that begins the line of an item."""
    bullet, widest = before[-1].box, _BULLET_GAP * item.box.height
    is_bullet = _BULLET.fullmatch(before[-1].text) and item.box.bottom < bullet.middle < item.box.top
    is_first = len(before) < 2 or not (
        bullet.bottom < before[-2].box.middle < bullet.top and 0 < bullet.left - before[-2].box.right < widest
    )
    return bool(is_bullet and is_first and 0 < item.box.left - bullet.right < widest)


_Numbered = list[tuple[int, Line]]
"""Runs with their place in the file."""


def _ordered(runs: _Numbered, height: float, level: int) -> Iterator[Line]:
    for rows, gutters in _groups(_rows(runs), height):
        found = _columns_and_numbers(rows, gutters, height) if gutters and level < _MOST_LEVELS else None
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
            yield joined_line((run for _, run in row), height)


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


def _columns_and_numbers(rows: list[_Numbered], gutters: list[_Span], height: float) -> list[_Numbered] | None:
    """Return the parts as :func:`_columns`; the first and last row may be a number that stands between columns."""
    found = _columns(rows, gutters, height)
    if found is not None or len(gutters) < 2:
        return found
    places = [{at for at, part in enumerate(_by_column(row, gutters)) if part} for row in rows]
    first = len(places[0]) == 1 and not any(places[0] & own for own in places[1:])
    last = len(places[-1]) == 1 and not any(places[-1] & own for own in places[:-1])
    inner = rows[first : len(rows) - last]
    if not inner or len(inner) == len(rows):
        return None
    spans = [_Span(run.box.left, run.box.right) for row in inner for _, run in row]
    found = _columns(inner, _gutters(_joined_spans(spans, height)), height)
    return None if found is None else [*rows[:first], *found, *rows[len(rows) - last :]]


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
    is_by_columns = sum(one != other for one, other in pairwise(places)) < max(len(columns), _CHANGES * len(both))
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
        are_boxes = len(both) >= _LEAST_BOXED and all(has_letters(run for _, run in column) for column in columns)
        least = _LEAST_BOXED if are_boxes else _LEAST_LINES
        is_long = all(len(_rows(column)) >= least for column in columns)
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
    cells = [
        [joined_line((run for _, run in cell), height).text if cell else "" for cell in _by_column(row, gutters)]
        for row in rows
    ]
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
