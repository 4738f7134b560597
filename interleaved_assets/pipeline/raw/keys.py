"""File names of raw shards, and their partition keys: safe in the UI, in URLs and in file names.

A shard is a file whose name has the ending of a format. Neither its name nor that of a folder begins with a dot: such
folders hold snapshots, deleted files and copies in progress (``.snapshot``, ``.Trash-0``, rsync's ``.~tmp~``). Its key
is its path below the raw root, percent-encoded except for ``/``; the key of a tar, and of a format that says so, is
without the ending.
Characters with a meaning in Dagster's partition selections or in paths are encoded as well: commas and ``...``, the
folder names ``.`` and ``..``, empty folder names, and ``~``, which marks keys that were cut because they exceeded 200
bytes.

Paths that differ in more than such an ending have different keys. Of several files with one key, such as ``a.tar`` and
``a.tar.gz``, or ``b.parquet`` and ``b.parquet.tar``, the first of :func:`shard_paths` is the shard.
"""

import hashlib
import re
from collections.abc import Collection
from typing import Final
from urllib.parse import quote, unquote

from interleaved_assets.io.formats.registry import all_formats, format_named
from interleaved_assets.io.storage.walk import is_hidden
from interleaved_assets.model.errors import OptionError

MAX_KEY_BYTES: Final = 200
_CUT_MARK: Final = "~"
_DIGEST_LENGTH: Final = 32
_DOT_FOLDER: Final = re.compile(r"(?:(?<=/)|^)\.{1,2}(?=/|$)")
_EDGE_SLASH: Final = re.compile(r"(?:(?<=/)|^)/|/$")


def is_shard(path: str, formats: Collection[str] = ()) -> bool:
    """Return whether the file at ``path`` is a shard of one of ``formats``; all formats count if that is empty."""
    return not is_hidden(path) and bool(_left_out(path, formats) or _other(path, formats))


def shard_key(path: str) -> str:
    """Return the key of the shard at ``path`` below the raw root (``/`` between folders), at most 200 ASCII bytes."""
    key = _encode(without_key_ending(path))
    if len(key) <= MAX_KEY_BYTES:
        return key
    digest = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGEST_LENGTH]
    return key[: MAX_KEY_BYTES - _DIGEST_LENGTH - len(_CUT_MARK)] + _CUT_MARK + digest


def without_key_ending(path: str) -> str:
    """Return the part of ``path`` that the key stands for; files with the same part are one shard."""
    return path.removesuffix(_left_out(path))


def _endings_left_out(formats: Collection[str] = ()) -> list[str]:
    """Return the endings that no key has, such as those of tars, in lower and in upper case."""
    endings = [
        ending
        for one in all_formats()
        if not one.keeps_ending and (not formats or one.name in formats)
        for ending in one.endings
    ]
    return [*endings, *(ending.upper() for ending in endings)]


def _left_out(path: str, formats: Collection[str] = ()) -> str:
    """Return the ending of the file that its key does not have; empty if there is none."""
    return next((ending for ending in _endings_left_out(formats) if path.endswith(ending)), "")


def _other(path: str, formats: Collection[str]) -> bool:
    """Return whether the file is a shard whose key keeps the ending."""
    named = format_named(path, formats)
    return named is not None and named.keeps_ending and not named.only_bundled


def is_cut(key: str) -> bool:
    """Return whether the key was cut, so that its path is found only by listing the raw root."""
    return _CUT_MARK in key


def shard_paths(key: str, formats: Collection[str] = ()) -> list[str]:
    """Return the paths below the raw root that have this key, which must not be cut; the preferred one is first."""
    if is_cut(key):
        raise ValueError(f"key {key!r} was cut, its path cannot be read from it")
    stem = unquote(key, errors="surrogateescape")
    return [*([stem] if _other(stem, formats) else []), *(stem + ending for ending in _endings_left_out(formats))]


def preference(path: str) -> int:
    """Return the place of the shard at ``path`` among the files with its key: the smallest is the shard."""
    ending = _left_out(path)
    return _endings_left_out().index(ending) if ending else -1


def _encode(stem: str) -> str:
    key = quote(stem, safe="/", errors="surrogateescape").replace(_CUT_MARK, "%7E").replace("...", "%2E%2E%2E")
    key = _DOT_FOLDER.sub(lambda found: found[0].replace(".", "%2E"), key)
    return _EDGE_SLASH.sub("%2F", key)


def is_key(text: str) -> bool:
    """Return whether ``text`` may be the key of a shard; a path made of it then stays below its folder."""
    safe = re.fullmatch(r"[\w.~%/-]+", text, re.ASCII) and len(text) <= MAX_KEY_BYTES
    # macOS copies ``a.json`` with a file ``._a.json``; a key may be cut within a folder such as ``..data``
    is_named = not re.match(r"\.[^.]", text.rpartition("/")[2])
    return bool(safe) and is_named and not _DOT_FOLDER.search(text) and not _EDGE_SLASH.search(text)


def check_key(text: str) -> None:
    """Raise OptionError if ``text`` cannot be the key of a shard."""
    if not is_key(text):
        raise OptionError(f"{text!r} is not the key of a shard: keys are as in the UI, such as web/part-00017")
