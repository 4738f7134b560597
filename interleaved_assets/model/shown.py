"""What may be stored and shown of URLs and of text from data: no credentials, no control characters.

Every error message goes through :func:`shown`, every locator of a file that was read through
:func:`without_credentials`, every line of the command line through :func:`escaped`.
"""

import re
from typing import Final

# of limited length: without a limit, time would grow with the square of a long run of letters
_SCHEME: Final = r"[A-Za-z][A-Za-z0-9+.-]{0,30}"
_URL: Final = re.compile(rf"{_SCHEME}://[^\s'\"<>]*")
# in a chain such as simplecache::https://…; not the "::" of an IPv6 address or of a file's name
_LINK: Final = re.compile(rf"::(?={_SCHEME}(?:://|::))")
_AUTHORITY: Final = re.compile(r"[^/?#]*")
_USER_AND_PASSWORD: Final = re.compile(r"(?!arn:|\[)[^:]*:(?!\d*$)")
# what stands before the "@" there is a container's name
_CONTAINER_FIRST: Final = frozenset({"abfs", "abfss", "az", "adl", "wasb", "wasbs"})
# elsewhere "?" and "#" are characters of a name
_WITH_QUERY: Final = frozenset({"http", "https"})
# C0, DEL, C1, marks that change the direction of writing, separators of lines, halves of surrogate pairs
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def without_credentials(uri: str) -> str:
    """``uri`` without user and password, and for http(s) without query and fragment: these may be secrets.

    Links of a chain (``simplecache::https://…``) are treated one by one. Paths and URLs without such parts come back
    as they are.
    """
    return "::".join(_without_credentials(link) for link in _LINK.split(uri))


def has_user(uri: str) -> bool:
    """Whether a link of ``uri`` has a user, or user and password, before its host."""
    return any(_user_length(link) for link in _LINK.split(uri))


def has_query(uri: str) -> bool:
    """Whether ``uri`` is a URL with a query or a fragment, of whatever scheme."""
    return any("?" in link or "#" in link for link in _LINK.split(uri) if _URL.match(link))


def shown(text: str) -> str:
    """``text`` with every URL in it :func:`without_credentials` and every control character but the newline escaped.

    For a message that is made of lines of ours and of text from data.
    """
    text = _URL.sub(lambda match: _keeping_punctuation(match[0]), text)
    return "\n".join(map(escaped, text.split("\n")))


def escaped(text: str) -> str:
    r"""``text`` with what could steer a terminal spelled out: ``\x1b`` for an escape, ``\u202e`` for a mark that turns
    the direction of writing; newlines and tabs as well. Nothing else changes.
    """
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


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
    """Length of ``user:password@`` behind the scheme of one link; 0 where there is none."""
    if not _URL.match(link):
        return 0
    scheme, _, rest = link.partition("://")
    authority = _AUTHORITY.match(rest)[0]  # type: ignore[index]  # it matches everything, the empty text included
    if "@" in authority:
        is_container = scheme.lower() in _CONTAINER_FIRST and ":" not in authority.rpartition("@")[0]
        return 0 if is_container else authority.rindex("@") + 1
    # a password may hold a character that ends the authority of a correct URL
    return rest.rfind("@") + 1 if _USER_AND_PASSWORD.match(authority) else 0
