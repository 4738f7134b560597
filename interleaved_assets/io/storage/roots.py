"""Allowed roots: a ``source_ref`` comes from data, so it may point only below these folders and URLs."""

import os
from collections.abc import Iterable, Sequence
from urllib.parse import unquote

from interleaved_assets.io.storage.filesystem import is_chain, is_local, is_within, locator_path
from interleaved_assets.io.storage.options import SAME_STORAGE
from interleaved_assets.model.errors import OptionError


def folders_of(uris: Iterable[str]) -> tuple[str, ...]:
    """Return the folders of ``uris``, sorted, without duplicates: the default allowed roots.

    For a file that is a symbolic link, the folder of its content is included, as in the cache of Hugging Face.
    """
    files = {place for uri in uris for place in (locator_path(uri), _target(uri))}
    return tuple(sorted({file.rpartition("/")[0] or "/" for file in files}))


def check_allowed(uri: str, allowed_roots: Sequence[str]) -> bool:
    """Return whether ``uri`` is one of ``allowed_roots`` or below one.

    Local paths are compared after following all symbolic links on both sides. Remote URLs must have the root's scheme
    and bucket, start with the root's path segments, and have no ``.`` or ``..`` segment, percent-encoded or not.
    Chained URLs (``a::b``) are never allowed.

    Raises:
        OptionError: ``allowed_roots`` is one string.
    """
    if isinstance(allowed_roots, str):
        # each letter would be a root, and "/" allows every file
        raise OptionError(f"allowed_roots is a list of folders and URLs, not one string: write [{allowed_roots!r}]")
    if "\0" in uri or is_chain(uri):
        return False
    return any(_is_below(uri, root) for root in allowed_roots)


def _is_below(uri: str, root: str) -> bool:
    if is_local(uri) != is_local(root):
        return False
    if is_local(uri):
        return is_within(uri, root)
    scheme, segments = _split(uri)
    root_scheme, root_segments = _split(root)
    if scheme != root_scheme or any(unquote(segment) in (".", "..") for segment in segments):
        return False
    if any("\\" in unquote(segment) or "/" in unquote(segment) for segment in segments):
        return False
    return segments[: len(root_segments)] == root_segments


def _split(uri: str) -> tuple[str, list[str]]:
    scheme, _, path = uri.partition("://")
    scheme = scheme.lower()
    return SAME_STORAGE.get(scheme, scheme), path.rstrip("/").split("/")


def _target(uri: str) -> str:
    """Return the file that ``uri`` leads to, if it is a symbolic link; else the same as :func:`locator_path`."""
    place = locator_path(uri)
    is_link = is_local(uri) and os.path.islink(place)  # noqa: PTH114 - Path.is_symlink raises if access is denied
    return os.path.realpath(place) if is_link else place
