"""The text of a page as runs: characters that PDFium gives one after the other and that stand side by side."""

import math
import re
import unicodedata
from collections.abc import Sequence
from ctypes import byref, c_double
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
import pypdfium2.raw as raw

from interleaved_assets.io.pdf.lines import Box, Line
from interleaved_assets.io.pdf.objects import Matrix, clockwise
from interleaved_assets.io.pdf.right_to_left import RIGHT_TO_LEFT, as_read

_WRAPPED: Final = (0xFFFE, 0x02)
"""Characters that PDFium writes for a hyphen at the end of a line; no line end follows."""
_ENDS: Final = (0x0A, 0x0D, *_WRAPPED)
_SPACES: Final = tuple(code for code in range(0x3001) if chr(code).isspace() and code not in _ENDS)
_APART: Final = 0.7
"""Distance of two characters from which on they are no run, as a multiple of their height."""
_SHIFTED: Final = 0.6
"""Distance of the middles of two characters from which on they stand in different lines, likewise."""
_SAME: Final = 0.2
"""Distance of the baselines of two runs of one line, at most, likewise."""
_WORD: Final = 0.25
"""Distance of two characters from which on they are two words, beyond that of most of their run, likewise."""
_LETTERS: Final = 3
"""Such distances in a row from which on they are between the letters of a word."""
_MOST_CHARACTERS: Final = 1_000_000
"""Characters of a page that are read."""
_CJK: Final = r"[\u3001-\u30ff\u3400-\u9fff\uf900-\ufaff\uff01-\uffee]"
_SPACED: Final = re.compile(rf"(?<![^\s]){_CJK}(?: {_CJK}){{{_LETTERS},}}(?![^\s])")
"""A line of Chinese or Japanese that is justified, or set apart, by space between all of its characters."""
_PRESENTATION: Final = re.compile(r"[\ufb00-\ufb4f\ufb50-\ufdff\ufe70-\ufefc]+")


class Characters(NamedTuple):
    """Characters of a page without line ends and what has no meaning."""

    codes: np.ndarray
    """Code points."""
    boxes: np.ndarray
    """Left, bottom, right and top of each."""
    places: np.ndarray
    """Number of each on the page."""
    lines: np.ndarray
    """Number of its line."""
    wrapped: frozenset[int]
    """Lines that end with a hyphen."""
    quarters: np.ndarray
    """Right angles by which each is turned clockwise on the page without its /Rotate; a space as the one before it."""


def directions(found: Characters) -> list[int]:
    """Return by how many right angles characters of the page are turned, the one of most characters first."""
    counts = np.bincount(found.quarters, minlength=4)
    return [int(quarter) for quarter in np.argsort(-counts, kind="stable") if counts[quarter]]


def page_runs(text_page: Any, found: Characters, quarter: int, rules: Sequence[Box] = ()) -> list[Line]:
    """Return the runs of a page that are turned by ``quarter``, in PDFium's order, which is mostly that of the file.

    Args:
        text_page: pypdfium2's text page.
        found: its characters.
        quarter: one of :func:`directions`; the page is turned back by it.
        rules: upright lines of the page so turned; no run crosses them.
    """
    turn = clockwise(-quarter)
    chosen = found.quarters == quarter
    codes, boxes, places, numbers = (part[chosen] for part in found[:4])
    boxes = _turned(boxes, turn)
    is_space = np.isin(codes, _SPACES)
    drawn = np.flatnonzero(~is_space)
    if not len(drawn):
        return []
    begins = np.append(0, np.flatnonzero(_is_apart(boxes[drawn], numbers[drawn], rules)) + 1)
    heights, across = _heights_and_gaps(boxes)
    wide = (across > _WORD * heights) & ~is_space[1:] & ~is_space[:-1]
    runs: list[_Run] = []
    for begin, end in zip(begins, np.append(begins[1:], len(drawn)), strict=True):
        first, last = drawn[begin], drawn[end - 1]
        of_run = codes[first : last + 1], boxes[first : last + 1]
        if wide[first:last].any():
            of_run = _with_spaces(*of_run, wide[first:last])
        runs.append(_Run(_text(*of_run), boxes[drawn[begin:end]], int(places[first]), int(numbers[first])))
    lines: list[Line] = []
    for number, line in groupby(runs, key=lambda run: run.line):
        lines += _with_one_height(list(line), text_page, turn, is_wrapped=number in found.wrapped)
    return lines


class _Run(NamedTuple):
    text: str
    boxes: np.ndarray
    place: int
    """Number of its first character on the page."""
    line: int


def page_characters(text_page: Any, shown: Box) -> Characters:
    """Return the characters of pypdfium2's text page that stand, at least in part, in ``shown``."""
    handle = text_page.raw
    count = max(min(raw.FPDFText_CountChars(handle), _MOST_CHARACTERS), 0)
    unicode_of, box_of = raw.FPDFText_GetUnicode, raw.FPDFText_GetLooseCharBox
    codes = np.array([unicode_of(handle, at) for at in range(count)], np.uint32)
    found = (raw.FS_RECTF * count)()
    has_box = np.array([bool(box_of(handle, at, found[at])) for at in range(count)], bool)
    # in FS_RECTF: left, top, right, bottom
    boxes = np.frombuffer(found, np.float32).reshape(count, 4)[:, [0, 3, 2, 1]].astype(np.float64)
    _join_surrogates(codes)
    is_end = np.isin(codes, _ENDS)
    lines = np.cumsum(is_end)
    is_control = (codes < 0x20) | ((codes >= 0x7F) & (codes < 0xA0)) | (codes > 0x10FFFF)
    left, bottom, right, top = boxes.T
    is_shown = (left < shown.right) & (shown.left < right) & (bottom < shown.top) & (shown.bottom < top)
    is_shown &= has_box & np.isfinite(boxes).all(1)
    kept = np.flatnonzero(is_shown & ~is_end & (~is_control | np.isin(codes, _SPACES)))
    wrapped = frozenset((lines[np.isin(codes, _WRAPPED)] - 1).tolist())
    quarters = _quarters(handle, kept, boxes[kept], np.isin(codes[kept], _SPACES))
    return Characters(codes[kept], boxes[kept], kept, lines[kept], wrapped, quarters)


def _quarters(handle: Any, places: np.ndarray, boxes: np.ndarray, is_space: np.ndarray) -> np.ndarray:
    drawn = np.flatnonzero(~is_space)
    if not len(drawn):
        return np.zeros(len(places), int)
    # one request for letters that stand side by side, since requests take a quarter of the time of a page
    differ = (np.diff(boxes[drawn][:, [1, 3]], axis=0) != 0).any(1)
    asked = np.append(0, np.flatnonzero(differ) + 1)
    found = np.array([_quarter(handle, at) for at in places[drawn[asked]].tolist()])
    return np.asarray(np.repeat(found, np.diff(np.append(asked, len(drawn))))[np.maximum(np.cumsum(~is_space) - 1, 0)])


def _quarter(handle: Any, place: int) -> int:
    quarter = round(max(raw.FPDFText_GetCharAngle(handle, place), 0) / (math.pi / 2)) % 4
    if raw.FPDFText_GetFontSize(handle, place) < 0:  # turns the character by itself
        return (quarter + 2) % 4
    if quarter == 2 and raw.FPDFText_GetMatrix(handle, place, matrix := raw.FS_MATRIX()) and matrix.d > 0:
        return 0  # mirrored, but not upside down
    return quarter


def _turned(boxes: np.ndarray, turn: Matrix) -> np.ndarray:
    if turn == Matrix():
        return boxes
    corners = boxes[:, [0, 1]], boxes[:, [2, 3]]  # of a quarter turn, opposite corners say all
    ends = [(turn.a * x + turn.c * y + turn.e, turn.b * x + turn.d * y + turn.f) for x, y in (one.T for one in corners)]
    (left, bottom), (right, top) = (
        [choose(one, other) for one, other in zip(*ends, strict=True)] for choose in (np.minimum, np.maximum)
    )
    return np.stack([left, bottom, right, top], 1)


def _join_surrogates(codes: np.ndarray) -> None:
    """Replace a pair of surrogates by its character and one without meaning, and half a pair by U+FFFD."""
    for at in np.flatnonzero((codes >= 0xD800) & (codes < 0xE000)):
        code = int(codes[at])
        if 0xD800 <= code < 0xDC00 and at + 1 < len(codes) and 0xDC00 <= codes[at + 1] < 0xE000:
            codes[at] = 0x10000 + (code - 0xD800) * 0x400 + int(codes[at + 1]) - 0xDC00
            codes[at + 1] = 0
        elif code:
            codes[at] = 0xFFFD


def _is_apart(boxes: np.ndarray, lines: np.ndarray, rules: Sequence[Box]) -> np.ndarray:
    """Return for each character but the first whether another run begins with it."""
    left, bottom, right, top = boxes.T
    height, across = _heights_and_gaps(boxes)
    middle = (bottom + top) / 2
    apart = (lines[1:] != lines[:-1]) | (across > _APART * height)
    apart |= np.abs(middle[1:] - middle[:-1]) > _SHIFTED * height
    if rules:
        goes_on = left[:-1] <= left[1:]
        begin, end = np.where(goes_on, right[:-1], right[1:]) - 1, np.where(goes_on, left[1:], left[:-1]) + 1
        for rule in rules:
            beside = (rule.bottom <= middle[1:]) & (middle[1:] <= rule.top)
            apart |= beside & (begin <= rule.left) & (rule.left <= end)
    return np.asarray(apart)


def _heights_and_gaps(boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return for each character but the first the larger height, and the distance, of it and the one before it."""
    left, bottom, right, top = boxes.T
    heights = np.maximum(top - bottom, 1e-6)
    across = np.maximum(left[1:] - right[:-1], left[:-1] - right[1:])
    return np.maximum(heights[1:], heights[:-1]), across


def _with_spaces(codes: np.ndarray, boxes: np.ndarray, wide: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a run with a space where PDFium gives none between words that the file only sets apart.

    ``wide`` says of each character but the first whether it is so far from the one before it. Where most of a run are
    set apart, words are still further apart. Three wide distances in a row are those between the letters of one word,
    which is set apart for emphasis.
    """
    heights, across = _heights_and_gaps(boxes)
    wide = wide & (across > _WORD * heights + np.median(across))
    borders = np.flatnonzero(np.diff(wide, prepend=False, append=False)).reshape(-1, 2)
    at = [gap + 1 for begin, end in borders.tolist() if end - begin < _LETTERS for gap in range(begin, end)]
    return np.insert(codes, at, ord(" ")), np.insert(boxes, at, boxes[at], axis=0)


def _with_one_height(line: list[_Run], text_page: Any, turn: Matrix, *, is_wrapped: bool) -> list[Line]:
    """Return the runs of a line; those on one baseline have one height.

    It is that of the middle character: what is raised or lowered, or larger, does not move the line, and some fonts
    have a height for each letter.
    """
    if is_wrapped:
        line[-1] = line[-1]._replace(text=f"{line[-1].text}-")
    found: list[Line] = []
    while line:
        same = 1
        if len(line) > 1:
            baseline, height = _baseline(line[0], text_page, turn), np.ptp(line[0].boxes[:, [1, 3]], axis=1).max()
            while same < len(line) and abs(_baseline(line[same], text_page, turn) - baseline) < _SAME * height:
                same += 1
        boxes = line[0].boxes if same == 1 else np.concatenate([run.boxes for run in line[:same]])
        _, bottom, _, top = np.sort(boxes, axis=0)[len(boxes) // 2].tolist()
        for run in line[:same]:
            left, right = float(run.boxes[:, 0].min()), float(run.boxes[:, 2].max())
            found.append(Line(run.text, Box(left, bottom, right, top)))
        line = line[same:]
    return found


def _baseline(run: _Run, text_page: Any, turn: Matrix) -> float:
    x, y = c_double(), c_double()
    raw.FPDFText_GetCharOrigin(text_page.raw, run.place, byref(x), byref(y))
    return turn.point(x.value, y.value)[1]


def _text(codes: np.ndarray, boxes: np.ndarray) -> str:
    """Return the text of a run in the order in which it is read, without presentation forms and letter spacing."""
    text = codes.astype("<u4").tobytes().decode("utf-32-le", "replace")
    if RIGHT_TO_LEFT.search(text):
        text = as_read(text, boxes)
    text = _PRESENTATION.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)
    return _SPACED.sub(lambda found: found[0].replace(" ", ""), " ".join(text.split()))
