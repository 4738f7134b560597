"""The text of a page as runs: characters that PDFium gives one after the other and that stand side by side."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from ctypes import byref
from itertools import groupby
from typing import Any, Final, NamedTuple

import pypdfium2.raw as raw

from interleaved_assets.io.pdf.layout import Box, Line
from interleaved_assets.io.pdf.objects import Matrix

_WRAPPED: Final = ("\ufffe", "\x02")
"""What PDFium writes for a hyphen at the end of a line; no line end follows."""
_APART: Final = 1.0
"""Distance of two characters from which on they are no run, as a multiple of their height."""
_SHIFTED: Final = 0.6
"""Distance of the middles of two characters from which on they stand in different lines, likewise."""
_MOST_CHARACTERS: Final = 1_000_000
"""Characters of a page that are read."""
_RTL: Final = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_PRESENTATION: Final = re.compile(r"[\ufb00-\ufb4f\ufb50-\ufdff\ufe70-\ufefc]+")


class _Character(NamedTuple):
    text: str
    box: Box | None
    """None for a space."""


def page_runs(text_page: Any, turn: Matrix, rules: Sequence[Box] = ()) -> list[Line]:
    """Return the runs of a page in PDFium's order, which is mostly that of the file.

    Args:
        text_page: pypdfium2's text page.
        turn: the map of :func:`.page_matrix`.
        rules: upright lines; no run crosses them.
    """
    runs: list[Line] = []
    pending: list[_Character] = []

    def end(*, is_wrapped: bool = False) -> None:
        cleaned = " ".join(_logical(pending).split())
        boxes = [character.box for character in pending if character.box is not None]
        pending.clear()
        if cleaned and boxes:
            lefts, bottoms, rights, tops = zip(*boxes, strict=True)
            middle = len(boxes) // 2  # what is raised or lowered, or larger, as in formulas, does not move the line
            box = Box(min(lefts), sorted(bottoms)[middle], max(rights), sorted(tops)[middle])
            runs.append(Line(f"{cleaned}-" if is_wrapped else cleaned, box))

    last: Box | None = None
    for character in _characters(text_page, turn):
        if character.text in ("\r", "\n"):
            end()
            last = None
        elif character.text in _WRAPPED:
            end(is_wrapped=True)
            last = None
        elif character.box is None:
            pending.append(character)
        else:
            if last is not None and (_is_apart(last, character.box) or _is_parted(last, character.box, rules)):
                end()
            pending.append(character)
            last = character.box
    end()
    return runs


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
            yield _Character(character, None)
        elif code >= 0x20 and not 0x7F <= code < 0xA0 and box_of(handle, at, space):
            found = Box(box.left, box.bottom, box.right, box.top)
            yield _Character(character, turn.box(found) if is_turned else found)


def _is_apart(last: Box, box: Box) -> bool:
    height = max(last.height, box.height, 1e-6)
    across = max(box.left - last.right, last.left - box.right)
    return across > _APART * height or abs(last.middle - box.middle) > _SHIFTED * height


def _is_parted(last: Box, box: Box, rules: Sequence[Box]) -> bool:
    """Return whether an upright line stands between two characters."""
    if not rules:
        return False
    left, right = (last.right, box.left) if last.left <= box.left else (box.right, last.left)
    return any(left - 1 <= rule.left <= right + 1 and rule.bottom <= box.middle <= rule.top for rule in rules)


def _logical(characters: list[_Character]) -> str:
    """Return the text in the order in which it is read, with letters in place of presentation forms.

    PDFium turns the letters of right-to-left text around, those of a ligature and of /ActualText too, which share one
    box and were in order.
    """
    text = "".join(character.text for character in characters)
    if _RTL.search(text):
        groups = (list(group) for _, group in groupby(characters, key=lambda character: character.box))
        text = "".join(
            "".join(character.text for character in (reversed(group) if _is_rtl(group) else group)) for group in groups
        )
    return _PRESENTATION.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)


def _is_rtl(group: list[_Character]) -> bool:
    return len(group) > 1 and all(_RTL.match(character.text) for character in group)
