"""Text that is safe to store and show: URLs without credentials, control characters escaped.

Error messages pass :func:`shown`, locators of files that were read :func:`without_credentials`, lines printed by the
command line :func:`escaped`, cells of Markdown tables :func:`markdown_cell`.
"""

import html
import logging
import re
from collections.abc import Iterable, Sequence
from typing import Final

# limited length: without the limit, time is quadratic in the length of a run of letters
_SCHEME: Final = r"[A-Za-z][A-Za-z0-9+.-]{0,30}"
_URL: Final = re.compile(rf"{_SCHEME}://[^\s'\"<>]*")
# the "::" of a chain such as simplecache::https://…; not the one of an IPv6 address or a file name
_LINK: Final = re.compile(rf"::(?={_SCHEME}(?:://|::))")
_AUTHORITY: Final = re.compile(r"[^/?#]*")
_USER_AND_PASSWORD: Final = re.compile(r"(?!arn:|\[)[^:]*:(?!\d*$)")
# in these schemes, a container name precedes the "@"
_CONTAINER_FIRST: Final = frozenset({"abfs", "abfss", "az", "adl", "wasb", "wasbs"})
# in other schemes "?" and "#" belong to the file name
_WITH_QUERY: Final = frozenset({"http", "https"})
# C0, DEL, C1, marks that change the writing direction, line separators, unpaired surrogates
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")

_LONGEST_SHOWN_LINE: Final = 1500
_LINE_END: Final = 300
_MOST_LINES: Final = 20


def without_credentials(uri: str) -> str:
    """Return ``uri`` without user and password, and for http(s) without query and fragment, which may hold secrets.

    In a chain (``simplecache::https://…``) each link is cleaned. Paths and URLs without such parts are unchanged.
    """
    return "::".join(_without_credentials(link) for link in _LINK.split(uri))


def has_user(uri: str) -> bool:
    """Return whether a link of ``uri`` has a user, or user and password, before its host."""
    return any(_user_length(link) for link in _LINK.split(uri))


def has_query(uri: str) -> bool:
    """Return whether ``uri`` is a URL with a query or a fragment, in any scheme."""
    return any("?" in link or "#" in link for link in _LINK.split(uri) if _URL.match(link))


def shown(text: str) -> str:
    """Return ``text`` without credentials in its URLs, and with all control characters except newlines escaped."""
    text = _URL.sub(lambda match: _keeping_punctuation(match[0]), text)
    return "\n".join(map(escaped, text.split("\n")))


class ShownFormatter(logging.Formatter):
    """Formats warnings, whose names of files and samples are data, without control characters and credentials."""

    def format(self, record: logging.LogRecord) -> str:
        return shown(super().format(record))


def show_warnings() -> None:
    """Let what Python prints warnings with, where nobody has set a handler, print no control characters of data.

    For workers, and for Dagster's code servers and runs. The command line has a formatter that imports this one late.
    """
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(ShownFormatter())


def escaped(text: str) -> str:
    r"""Return ``text`` with all control characters escaped, such as ``\x1b`` and ``\u202e``, also newlines and tabs."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def markdown_cell(value: object) -> str:
    """Return ``value`` as literal text in a Markdown table: text from data can neither end the cell nor add markup."""
    line = escaped(" ".join(html.escape(str(value), quote=False).split()))
    return re.sub(r"([\\|`*_\[\]#~!])", r"\\\1", line)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]], numeric_from: int = 1) -> str:
    """Return a Markdown table; columns from ``numeric_from`` on are right-aligned. Cells are escaped."""
    rules = ["---" if number < numeric_from else "---:" for number in range(len(header))]
    lines = [header, rules, *([markdown_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _keeping_punctuation(url: str) -> str:
    end = len(url.rstrip(".,:;)]}"))
    return without_credentials(url[:end]) + url[end:]


def _without_credentials(link: str) -> str:
    if not _URL.match(link):
        return link
    scheme, _, rest = link.partition("://")
    rest = rest[_user_length(link) :]
    if scheme.lower() in _WITH_QUERY:
        rest = re.split("[?#]", rest, maxsplit=1)[0]
    return f"{scheme}://{rest}"


def _user_length(link: str) -> int:
    """Return the length of ``user:password@`` after the scheme of one link; 0 if it has none."""
    if not _URL.match(link):
        return 0
    scheme, _, rest = link.partition("://")
    authority = _AUTHORITY.match(rest)[0]  # type: ignore[index]  # it matches everything, the empty text included
    if "@" in authority:
        is_container = scheme.lower() in _CONTAINER_FIRST and ":" not in authority.rpartition("@")[0]
        return 0 if is_container else authority.rindex("@") + 1
    # a password may contain a character that would end the authority of a valid URL
    return rest.rfind("@") + 1 if _USER_AND_PASSWORD.match(authority) else 0


def cut_lines(text: str) -> str:
    """Cut the middle of long lines, and the last lines, so that ``text`` is no longer than a message should be."""
    lines = text.split("\n")
    more = [f"  and {len(lines) - _MOST_LINES:,} more"] if len(lines) > _MOST_LINES else []
    return "\n".join([*map(_cut_line, lines[:_MOST_LINES]), *more])


def _cut_line(line: str) -> str:
    return (
        line if len(line) <= _LONGEST_SHOWN_LINE else f"{line[: _LONGEST_SHOWN_LINE - _LINE_END]} … {line[-_LINE_END:]}"
    )


def cut_list(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return the first ``most`` names, and the number of the others: ``a, b and 1,200 more``."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def cut_text(text: str, length: int) -> str:
    """Return ``text`` in one line; beyond ``length`` characters it is cut, with the number of all of its characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[:length]}… ({len(text):,} characters)"
