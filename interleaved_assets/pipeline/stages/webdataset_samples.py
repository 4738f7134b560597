"""The samples that ``webdataset`` finds in a tar, read without importing it.

``import webdataset`` imports torch if that is installed: three seconds and 200 MB in each process. The rules here are
those of ``tar_file_iterator`` and ``group_by_keys`` in ``webdataset.tariterators`` 1.0 with their defaults, over the
same ``tarfile``. The tests compare the two on tars of every kind of name.
"""

import re
import tarfile
from collections.abc import Iterator
from typing import Any, Final

_SKIPPED: Final = re.compile(r"__[^/]*__($|/)")
_KEY_AND_SUFFIX: Final = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")
_OWN_FIELDS: Final = ("__key__", "__url__")
"""Fields that ``webdataset`` adds to every sample."""


def webdataset_samples(stream: Any) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield each sample's key, and the bytes of its members by suffix in lower case.

    ``stream`` is the tar, uncompressed, at its start. It is read forwards only, by ``read``, ``tell`` and ``seek``.
    Raises tarfile.TarError if it is cut or no tar, and ValueError if a sample has two members with one suffix.
    """
    key: str | None = None
    sample: dict[str, bytes] = {}
    for name, data in _members(stream):
        match = _KEY_AND_SUFFIX.match(name)
        if match is None:
            continue
        suffix = match[2].lower()
        if match[1] != key:
            if key is not None:
                yield key, sample
            key, sample = match[1], {}
        if suffix in sample or suffix in _OWN_FIELDS:
            raise ValueError(f"{name}: duplicate file name in tar file {suffix}")
        sample[suffix] = data
    if key is not None:
        yield key, sample


def _members(stream: Any) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each regular file."""
    with tarfile.open(fileobj=stream, mode="r:") as tar:
        for member in tar:
            if member.isreg() and not _SKIPPED.match(member.name):
                yield member.name, _content(member, stream)
            tar.members = []  # type: ignore[attr-defined]  # otherwise tarfile keeps every header


def _content(member: tarfile.TarInfo, stream: Any) -> bytes:
    """Return what ``tar.extractfile(member).read()`` does, which copies the content three times."""
    stream.seek(member.offset_data)
    content: bytes = stream.read(member.size)
    if len(content) < member.size:
        raise tarfile.ReadError("unexpected end of data")
    return content
