"""Runs with Arabic, Hebrew and other right-to-left text, in the order in which they are read."""

import re
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Final, NamedTuple

import numpy as np

RIGHT_TO_LEFT: Final = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
"""A letter, mark or digit of Arabic, Hebrew and other scripts that are read from the right."""
_DIGIT: Final = r"[\u0660-\u0669\u066b\u066c\u06f0-\u06f9]"
_LETTER: Final = rf"(?:(?!{_DIGIT}){RIGHT_TO_LEFT.pattern})"
_OTHER: Final = rf"(?:(?!{_DIGIT}|{_LETTER}).)"
_WORD: Final = rf"(?:(?={_OTHER})\w)"
_PARTS: Final = re.compile(
    rf"(?P<rtl>{_LETTER}+)|(?P<number>{_DIGIT}(?:[./:,]?{_DIGIT})*)"
    rf"|(?P<ltr>{_WORD}(?:{_OTHER}*{_WORD})?)|(?P<signs>(?:(?={_OTHER})\W)+)",
    re.DOTALL,
)


class _Part(NamedTuple):
    """A word, a number in Arabic digits, all from one Latin word to another, or what is between."""

    kind: str
    text: str
    left: float


def as_read(text: str, boxes: np.ndarray) -> str:
    """Return the text of a run in the order in which it is read.

    PDFium turns most words of right-to-left text around, and so the letters of a ligature and of /ActualText, which
    share one box and were in order; it leaves other words, and whole phrases, as they are drawn, from the left.

    Args:
        text: characters as PDFium gives them.
        boxes: left, bottom, right and top of each.
    """
    parts = []
    for found in _PARTS.finditer(text):
        letters = list(zip(found[0], map(tuple, boxes[found.start() : found.end()].tolist()), strict=True))
        kind = str(found.lastgroup)
        whole = {"rtl": _word, "number": _number}[kind](letters) if kind in ("rtl", "number") else found[0]
        parts.append(_Part(kind, whole, letters[0][1][0]))
    if 2 * sum(len(part.text) for part in parts if part.kind == "rtl") > len("".join(text.split())):
        return _phrase(parts)
    groups = groupby(parts, key=lambda part: part.kind == "ltr")
    return "".join(_inner_phrase(list(group)) for _, group in groups)


def _inner_phrase(parts: list[_Part]) -> str:
    """Return a phrase of another text, whose signs at both ends belong to that."""
    begin = parts[0].kind == "signs"
    end = len(parts) - (len(parts) > 1 and parts[-1].kind == "signs")
    signs = [part.text for part in parts]
    return "".join([*signs[:begin], _phrase(parts[begin:end]), *signs[end:]])


def _phrase(parts: Sequence[_Part]) -> str:
    """Return right-to-left text, turned around if it stands as drawn."""
    groups = groupby(parts, key=lambda part: part.kind if part.kind in ("ltr", "signs") else "rtl")
    # a word and a number without a sign between them are in any order
    touching = [sorted(group, key=lambda part: -part.left) if kind == "rtl" else list(group) for kind, group in groups]
    lefts = [group[0].left for group in touching if group[0].kind != "signs"]
    rises = sum(1 if one < other else -1 for one, other in pairwise(lefts))
    if rises > 0 and any(part.kind == "rtl" for part in parts):
        touching = [
            [part._replace(text=part.text[::-1]) if part.kind == "signs" else part for part in group]
            for group in reversed(touching)
        ]
    return "".join(part.text for group in touching for part in group)


def _word(letters: list[tuple[str, tuple[float, ...]]]) -> str:
    groups = ["".join(text for text, _ in group) for _, group in groupby(letters, key=lambda letter: letter[1])]
    if letters[0][1][0] < letters[-1][1][0]:
        return "".join(reversed(groups))
    return "".join(group[::-1] for group in groups)


def _number(letters: list[tuple[str, tuple[float, ...]]]) -> str:
    """Return a number, which is read from the left in right-to-left text too."""
    text = "".join(text for text, _ in letters)
    return text[::-1] if letters[0][1][0] > letters[-1][1][0] else text
