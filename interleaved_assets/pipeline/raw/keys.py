"""Partition keys: one per raw shard, safe in the UI, in URLs and in file names, and injective.

A key is the shard's path below the raw root, percent-encoded except for ``/`` and without ``.tar``. Characters with a
meaning in Dagster's partition selections or in paths are encoded as well: commas and ``...``, the folder names ``.``
and ``..``, empty folder names, and ``~``, which marks keys that were cut because they exceeded 200 bytes.
"""

import hashlib
import re
from typing import Final
from urllib.parse import quote, unquote

SHARD_EXTENSIONS: Final = (".tar", ".tar.gz", ".tgz")
MAX_KEY_BYTES: Final = 200
_CUT_MARK: Final = "~"
_DIGEST_LENGTH: Final = 32
_DOT_FOLDER: Final = re.compile(r"(?:(?<=/)|^)\.{1,2}(?=/|$)")
_EDGE_SLASH: Final = re.compile(r"(?:(?<=/)|^)/|/$")


def shard_key(path: str) -> str:
    """The key of the shard at ``path`` below the raw root (``/`` between folders); at most 200 bytes of ASCII."""
    stem = path.removesuffix(".tar")
    if not stem or stem.endswith(SHARD_EXTENSIONS):
        # otherwise "a.tar.gz" and "a.tar.gz.tar" would have the same key
        stem = path
    key = _encode(stem)
    if len(key) <= MAX_KEY_BYTES:
        return key
    digest = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGEST_LENGTH]
    return key[: MAX_KEY_BYTES - _DIGEST_LENGTH - len(_CUT_MARK)] + _CUT_MARK + digest


def is_cut(key: str) -> bool:
    """Whether the key was cut, so that its path is found only by listing the raw root."""
    return _CUT_MARK in key


def shard_path(key: str) -> str:
    """The path below the raw root that has this key.

    Raises:
        ValueError: the key was cut (see :func:`is_cut`).
    """
    if is_cut(key):
        raise ValueError(f"key {key!r} was cut, its path cannot be read from it")
    stem = unquote(key, errors="surrogateescape")
    return stem if stem.endswith(SHARD_EXTENSIONS) else stem + ".tar"


def _encode(stem: str) -> str:
    key = quote(stem, safe="/", errors="surrogateescape").replace(_CUT_MARK, "%7E").replace("...", "%2E%2E%2E")
    key = _DOT_FOLDER.sub(lambda found: found[0].replace(".", "%2E"), key)
    return _EDGE_SLASH.sub("%2F", key)
