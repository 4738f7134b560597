"""The functions that make characters and white space uniform."""

from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.rewriting.texts import map_texts

INVISIBLE: Final = (
    r"[\x00-\x08\x0e-\x1f\x7f-\x{84}\x{86}-\x{9f}\x{ad}\x{200b}\x{2060}\x{feff}"
    r"\x{202a}-\x{202e}\x{2066}-\x{2069}\x{fdd0}-\x{fdef}\x{fffe}\x{ffff}]"
)
"""Control characters other than white space, the soft hyphen, zero-width space and no-break space, word joiner,
controls of direction, and noncharacters. The zero-width joiner and non-joiner stay: scripts and emoji need them."""
_SPACES: Final = (
    (r"\r\n?|[\x0b\x0c\x{85}\x{2028}\x{2029}]", "\n"),
    (r"[\t \x{a0}\x{1680}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}]+", " "),
    (r" ?\n ?", "\n"),
    (r"\n{3,}", "\n\n"),
)


_UNEVEN: Final = (
    r"[^\S\n ]|[\x0b\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]|"
    r"  | \n|\n |\n{3}|^[ \n]|[ \n]$"
)
"""White space that :func:`normalize_whitespace` changes."""


def normalize_unicode(rows: pa.Table) -> pa.Table:
    """Remove invisible characters and compose the others to NFC."""
    return map_texts(rows, _may_be_invisible_or_composed, _composed)


def normalize_whitespace(rows: pa.Table) -> pa.Table:
    """Reduce white space to single spaces, line ends and empty lines."""
    return map_texts(rows, lambda texts: pc.match_substring_regex(texts, _UNEVEN), _spaced)


def _may_be_invisible_or_composed(texts: pa.Array) -> pa.Array:
    """Return which texts may change: those with other characters than ASCII, or with an invisible one."""
    return pc.or_(pc.invert(pc.string_is_ascii(texts)), pc.match_substring_regex(texts, INVISIBLE))


def _composed(texts: pa.Array) -> pa.Array:
    return pc.utf8_normalize(pc.replace_substring_regex(texts, INVISIBLE, ""), form="NFC")


def _spaced(texts: pa.Array) -> pa.Array:
    replaced = reduce(lambda found, rule: pc.replace_substring_regex(found, *rule), _SPACES, texts)
    return pc.utf8_trim(replaced, characters=" \n")
