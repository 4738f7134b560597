"""Files in a bucket that must stay what they are while a stage works on them.

While a file is pinned, whoever in this process opens it reads the object with the pinned ETag: S3 is not asked for its
size first, and refuses every read once it is another object. So its stamp need not be compared again after the work.
"""

import re
import threading
from typing import Final

_STAMP: Final = re.compile(r"etag:(.+)-(\d+)")
_lock = threading.Lock()
_pinned: dict[str, list[str]] = {}
"""By URI its stamp, once for each that pinned it."""


def pin(uri: str, stamp: str | None) -> bool:
    """Pin the object at ``uri`` to its stamp until :func:`unpin`; returns whether that was possible.

    Only objects in S3 can be pinned, and none that is pinned to another stamp.
    """
    if stamp is None or not uri.startswith(("s3://", "s3a://")) or _STAMP.fullmatch(stamp) is None:
        return False
    with _lock:
        others = _pinned.setdefault(uri, [])
        if others and others[0] != stamp:
            return False
        others.append(stamp)
        return True


def unpin(uri: str) -> None:
    """Undo one :func:`pin` that succeeded."""
    with _lock:
        _pinned[uri].pop()
        if not _pinned[uri]:
            del _pinned[uri]


def pinned_etag(uri: str) -> tuple[str, int] | None:
    """ETag without quotes and size in bytes of the pinned object; None if it is not pinned."""
    with _lock:
        stamps = _pinned.get(uri)
    found = _STAMP.fullmatch(stamps[0]) if stamps else None
    return (found[1], int(found[2])) if found else None
