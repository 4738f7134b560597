"""Personal data in texts: e-mail addresses, SSNs, IPv4 addresses and phone numbers, found by patterns.

The scores count what the rewriting function replaces, so that a bound and a redaction agree.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_OCTET: Final = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_NATIONAL: Final = (
    r"(?:\+?1[ .-]?)?(?:\(\d{3}\)[ .-]?|\d{3}[ .-])\d{3}[ .-]\d{4}(?: ?(?:x|ext\.?) ?\d{1,5})?"  # North America
)
_INTERNATIONAL: Final = r"\+[1-9](?:[ .()-]{0,2}\d){7,14}"
PATTERNS: Final = {
    "[EMAIL]": (r"()[A-Za-z0-9_%+-][A-Za-z0-9._%+-]*@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}()"),
    "[SSN]": r"(^|[^\w-])\d{3}-\d{2}-\d{4}($|[^\w-]|-$|-[^\d])",
    "[IP_ADDRESS]": rf"(^|[^\w.])(?:{_OCTET}\.){{3}}{_OCTET}($|[^\w.]|\.$|\.[^\d])",
    "[PHONE]": rf"(^|[^\w+-])(?:{_NATIONAL}|{_INTERNATIONAL})($|[^\w-]|-$|-[^\d])",
}
"""By replacement, the pattern (RE2) of what it replaces, in the order of replacement. The first and last group are what
stands around it and stays."""


def has_personal_data(texts: pa.Array) -> pa.Array:
    """Return for each text whether a pattern matches; False for null."""
    found = pc.match_substring_regex(texts, "|".join(PATTERNS.values()))
    return pc.fill_null(found, False)


def redacted(texts: pa.Array) -> pa.Array:
    """Return ``texts`` in which no pattern matches any more.

    Two neighbours share what stands between them, so that one pass may leave the second. Each replacement takes a digit
    or an ``@`` away and brings none, so that this ends.
    """
    while True:
        before = texts
        for replacement, pattern in PATTERNS.items():
            texts = pc.replace_substring_regex(texts, pattern, rf"\1{replacement}\2")
        if texts.equals(before):
            return texts


def count_replaced(before: pa.Array, after: pa.Array) -> dict[str, pa.Array]:
    """Return for each replacement how often it was put into each text."""
    return {name: pc.subtract(pc.count_substring(after, name), pc.count_substring(before, name)) for name in PATTERNS}
