"""Names of exported images and files: different for different images, on every file system."""

import hashlib
import re
from typing import Final

STAGE: Final = "image_export"
"""The ``stage`` of images in the ledger of an export, and the name of the asset."""

_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
_LONGEST: Final = 120
_CUT_MARK: Final = "="
_DIGEST_LENGTH: Final = 32
_SCOPE_LENGTH: Final = 12
_SET_LENGTH: Final = 16

_IMAGE_FILE: Final = re.compile(rf"images-[0-9a-f]{{{_SET_LENGTH}}}-\d{{6,}}\.(?:tar|parquet)")


def image_id(scope: str, sample_id: str, position: int) -> str:
    """Return the id of an image, which is also its name in a tar: different for different arguments.

    It has lower-case ASCII letters, digits and ``_ - % =`` only, no dot, and at most 200 characters. All other bytes of
    the sample id, capitals included, are percent-encoded, so that ids stay different on a file system that ignores case
    or normalizes Unicode. A long id is cut, and ends with its hash. WebDataset takes all of it as the key.
    """
    name = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in sample_id.encode())
    if len(name) > _LONGEST:
        digest = hashlib.sha256(sample_id.encode()).hexdigest()[:_DIGEST_LENGTH]
        name = name[: _LONGEST - _DIGEST_LENGTH - len(_CUT_MARK)] + _CUT_MARK + digest
    return f"{name}-{position:04d}-{scope}"


def scope_of(shard: str) -> str:
    """Return 12 hex digits of the hash of a shard's name, which keep its ids apart from those of other shards."""
    return hashlib.sha256(shard.encode("utf-8", "surrogateescape")).hexdigest()[:_SCOPE_LENGTH]


def numbered_id(name: str, number: int) -> str:
    """Return the id of image ``number``, counted from 0, of the set with that ``name`` (16 hex digits)."""
    return f"{name}-{number:08d}"


def set_name(text: str) -> str:
    """Return the name of a set of files, 16 hex digits, made from the content of the files."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_SET_LENGTH]


def file_stem(name: str, chunk: int) -> str:
    """Return the name of the files ``chunk`` of a set without their extension: ``images-<name>-000000``."""
    return f"images-{name}-{chunk:06d}"


def is_image_file(name: str) -> bool:
    """Return whether ``name`` is a tar or Parquet file named by :func:`file_stem`."""
    return _IMAGE_FILE.fullmatch(name) is not None
