"""Classes of characters, as bits in a table with an entry for each code point of Unicode."""

import functools
import string
import sys
import unicodedata
from typing import Final

import numpy as np
from numpy.typing import NDArray

NEWLINE: Final = ord("\n")
WHITE: Final = 1
"""White space, as ``str.split`` takes it."""
LETTER: Final = 2
"""Letters: categories L*, as ``str.isalpha`` takes them."""
UPPER: Final = 4
"""Upper case: category Lu."""
DIGIT: Final = 8
"""Decimal digits: category Nd."""
PUNCTUATION: Final = 16
"""Punctuation: categories P*, and the ASCII symbols that ``string.punctuation`` has."""
SPECIAL: Final = 32
"""White space, numbers, punctuation, symbols with emoji, marks that are no letters, control and private characters."""
LINE_END: Final = 64
"""The characters at which ``str.splitlines`` ends a line."""
CONTROL: Final = 128
"""Control characters: category Cc."""
WORD_PART: Final = 256
r"""Letters, digits, underscore and marks that Python's ``\w`` matches, and the apostrophe."""
MARK: Final = 512
"""The marks that OBELICS counts as punctuation."""
MARKS: Final = ",;:?!."
_PLANES: Final = ((0, 0x40000), (0xE0000, 0xF0000))
"""The code points that Unicode may assign; the others are unassigned or private."""
_LINE_ENDS: Final = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


@functools.cache
def class_table() -> NDArray[np.uint16]:
    """Return the classes of every code point, and of none for surrogates. It is made once."""
    table = np.full(sys.maxunicode + 1, SPECIAL, dtype=np.uint16)
    for first, end in _PLANES:
        categories = map(unicodedata.category, map(chr, range(first, end)))
        table[first:end] = np.fromiter(map(_BITS.__getitem__, categories), dtype=np.uint16, count=end - first)
    for code in range(0x3001):
        character = chr(code)
        if character.isspace():
            table[code] |= WHITE | SPECIAL
    for character in string.punctuation:
        table[ord(character)] |= PUNCTUATION | SPECIAL
    for character in _LINE_ENDS:
        table[ord(character)] |= LINE_END
    for character in MARKS:
        table[ord(character)] |= MARK
    for character in "_'":
        table[ord(character)] |= WORD_PART
    return table


def classes_of(codes: NDArray[np.uint32]) -> NDArray[np.uint16]:
    """Return the classes of each code point."""
    return np.take(class_table(), codes)


def is_of(classes: NDArray[np.uint16], *names: int) -> NDArray[np.bool_]:
    """Return which of these code points are in any of the classes."""
    return (classes & np.uint16(functools.reduce(int.__or__, names))) != 0


def _bits(category: str) -> int:
    bits = 0
    if category.startswith("L"):
        bits |= LETTER | WORD_PART
    if category == "Lu":
        bits |= UPPER
    if category == "Nd":
        bits |= DIGIT
    if category.startswith("N"):
        bits |= SPECIAL | WORD_PART
    if category.startswith("P"):
        bits |= PUNCTUATION
    if category[0] in "PSZC":
        bits |= SPECIAL
    if category == "Cc":
        bits |= CONTROL
    return bits


_CATEGORIES: Final = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn"
_BITS: Final = {category: _bits(category) for category in _CATEGORIES.split()}
