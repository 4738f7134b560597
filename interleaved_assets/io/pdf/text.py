"""The text of a page as runs: characters that PDFium gives one after the other and that stand side by side."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from ctypes import byref, c_double
from itertools import groupby
from typing import Any, Final, NamedTuple

import pypdfium2.raw as raw

from interleaved_assets.io.pdf.layout import Box, Line
from interleaved_assets.io.pdf.objects import Matrix

_WRAPPED: Final = ("\ufffe", "\x02")
"""What PDFium writes for a hyphen at the end of a line; no line end follows."""
_ENDS: Final = ("\r", "\n", *_WRAPPED)
_APART: Final = 0.7
"""Distance of two characters from which on they are no run, as a multiple of their height."""
_SHIFTED: Final = 0.6
"""Distance of the middles of two characters from which on they stand in different lines, likewise."""
_SAME: Final = 0.2
"""Distance of the baselines of two runs of one line, at most, likewise."""
_MOST_CHARACTERS: Final = 1_000_000
"""Characters of a page that are read."""
_RTL: Final = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_PRESENTATION: Final = re.compile(r"[\ufb00-\ufb4f\ufb50-\ufdff\ufe70-\ufefc]+")


class _Character(NamedTuple):
    text: str
    box: Box | None
    """None for a space."""
    at: int
    """Number on the page."""


def page_runs(text_page: Any, turn: Matrix, rules: Sequence[Box] = ()) -> list[Line]:
    """Return the runs of a page in PDFium's order, which is mostly that of the file.

    Args:
        text_page: pypdfium2's text page.
        turn: the map of :func:`.page_matrix`.
        rules: upright lines; no run crosses them.
    """
    runs: list[Line] = []
    line: list[list[_Character]] = [[]]
    last: Box | None = None
    for character in _characters(text_page, turn):
        if character.text in _ENDS:
            runs += _line_runs(line, text_page, turn, is_wrapped=character.text in _WRAPPED)
            line, last = [[]], None
            continue
        if character.box is not None:
            if last is not None and _is_apart(last, character.box, rules):
                line.append([])
            last = character.box
        line[-1].append(character)
    return runs + _line_runs(line, text_page, turn, is_wrapped=False)


def _line_runs(line: list[list[_Character]], text_page: Any, turn: Matrix, *, is_wrapped: bool) -> list[Line]:
    """Return the runs of a line; those on one baseline have one height.

    It is that of the middle character: what is raised or lowered, or larger, does not move the line, and some fonts
    have a height for each letter.
    """
    drawn = [(run, boxes) for run in line if (boxes := [one.box for one in run if one.box is not None])]
    runs: list[Line] = []
    while drawn:
        baseline, height = _baseline(drawn[0][0], text_page, turn), max(box.height for box in drawn[0][1])
        same = 1
        while same < len(drawn) and abs(_baseline(drawn[same][0], text_page, turn) - baseline) < _SAME * height:
            same += 1
        boxes = [box for _, own in drawn[:same] for box in own]
        bottom, top = (sorted(sides)[len(boxes) // 2] for sides in ([b.bottom for b in boxes], [b.top for b in boxes]))
        for run, own in drawn[:same]:
            cleaned = " ".join(_logical(run).split())
            if is_wrapped and run is line[-1]:
                cleaned += "-"
            runs.append(Line(cleaned, Box(min(b.left for b in own), bottom, max(b.right for b in own), top)))
        drawn = drawn[same:]
    return [run for run in runs if run.text]


def _baseline(run: list[_Character], text_page: Any, turn: Matrix) -> float:
    x, y = c_double(), c_double()
    first = next(character.at for character in run if character.box is not None)
    raw.FPDFText_GetCharOrigin(text_page.raw, first, byref(x), byref(y))
    return turn.point(x.value, y.value)[1]


def _characters(text_page: Any, turn: Matrix) -> Iterator[_Character]:
    handle, box, is_turned = text_page.raw, raw.FS_RECTF(), turn != Matrix()
    unicode_of, box_of, space = raw.FPDFText_GetUnicode, raw.FPDFText_GetLooseCharBox, byref(box)
    high = 0
    for at in range(min(raw.FPDFText_CountChars(handle), _MOST_CHARACTERS)):
        code = unicode_of(handle, at)
        if 0xD800 <= code < 0xDC00:
            high = code
            continue
        if 0xDC00 <= code < 0xE000:
            code = 0x10000 + (high - 0xD800) * 0x400 + code - 0xDC00 if high else 0xFFFD
        high = 0
        character = chr(code) if code < 0x110000 else "\ufffd"
        if character.isspace() or character in _WRAPPED:
            yield _Character(character, None, at)
        elif code >= 0x20 and not 0x7F <= code < 0xA0 and box_of(handle, at, space):
            found = Box(box.left, box.bottom, box.right, box.top)
            yield _Character(character, turn.box(found) if is_turned else found, at)


def _is_apart(last: Box, box: Box, rules: Sequence[Box]) -> bool:
    """Return whether two characters that follow one another are in different runs."""
    height = max(last.height, box.height, 1e-6)
    across = max(box.left - last.right, last.left - box.right)
    if across > _APART * height or abs(last.middle - box.middle) > _SHIFTED * height:
        return True
    return bool(rules) and _is_parted(last, box, rules)


def _is_parted(last: Box, box: Box, rules: Sequence[Box]) -> bool:
    """Return whether an upright line stands between two characters."""
    left, right = (last.right, box.left) if last.left <= box.left else (box.right, last.left)
    return any(left - 1 <= rule.left <= right + 1 and rule.bottom <= box.middle <= rule.top for rule in rules)


def _logical(characters: list[_Character]) -> str:
    """Return the text in the order in which it is read, with letters in place of presentation forms.

    PDFium turns most words of right-to-left text around, and so the letters of a ligature and of /ActualText, which
    share one box and were in order; it leaves other words as they are drawn, from the left.
    """
    text = "".join(character.text for character in characters)
    if _RTL.search(text):
        parts = groupby(characters, key=lambda character: _RTL.match(character.text) is not None)
        text = "".join(_word(list(part)) if is_rtl else "".join(one.text for one in part) for is_rtl, part in parts)
    return _PRESENTATION.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)


def _word(letters: list[_Character]) -> str:
    """Return letters of right-to-left text in the order in which they are read."""
    groups = ["".join(letter.text for letter in group) for _, group in groupby(letters, key=lambda letter: letter.box)]
    first, last = letters[0].box, letters[-1].box
    if first is not None and last is not None and first.left < last.left:
        return "".join(reversed(groups))
    return "".join(group[::-1] for group in groups)
