"""Read the directories of a TIFF: the tags and the positions of their values, but no pixels."""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from interleaved_assets.io.storage.atomic import BytesLike

# bytes per value of each field type: BYTE, ASCII, SHORT, LONG, RATIONAL, signed and float types, BigTIFF types
TYPE_BYTES: Final = dict(
    zip((*range(1, 14), 16, 17, 18), (1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 8, 8, 8), strict=True)
)
_UNSIGNED: Final = {1: "u1", 3: "u2", 4: "u4", 13: "u4", 16: "u8", 18: "u8"}


class TiffEntry(NamedTuple):
    """One tag of a directory: type and number of its values, and ``at``, their offset in the file."""

    tag: int
    type: int
    values: int
    at: int


class TiffDirectory(NamedTuple):
    """The tags of one image, in order; ``next_at`` is the position of the offset of the next directory.

    ``problem`` describes damage of the directory, None if there is none; ``value_bytes`` is the size of its entries and
    their values.
    """

    entries: tuple[TiffEntry, ...]
    next_at: int
    problem: str | None = None
    value_bytes: int = 0


def read_header(data: BytesLike) -> tuple[str, bool, int]:
    """Byte order, whether it is a BigTIFF, and the offset of the first directory.

    Raises:
        ValueError: ``data`` does not start with a TIFF header.
    """
    order = {b"II": "<", b"MM": ">"}.get(bytes(data[:2]))
    if order is None or len(data) < 8:
        raise ValueError("not a TIFF: it does not begin with a TIFF header")
    (magic,) = struct.unpack_from(order + "H", data, 2)
    if magic == 42:
        return order, False, struct.unpack_from(order + "I", data, 4)[0]
    if magic == 43 and len(data) >= 16 and struct.unpack_from(order + "HH", data, 4) == (8, 0):
        return order, True, struct.unpack_from(order + "Q", data, 8)[0]
    raise ValueError(f"not a TIFF: version {magic} in its header")


def read_chain(data: BytesLike, order: str, is_big: bool, position: int) -> Iterator[TiffDirectory]:
    """Yield the directories from ``position``; if one breaks the chain, it is the last."""
    seen: set[int] = set()
    taken = 0
    while position:
        if position in seen:
            yield TiffDirectory((), 0, f"directory {len(seen)} of the TIFF leads back to an earlier one")
            return
        try:
            found = read_directory(data, order, is_big, position)
        except ValueError as error:
            yield TiffDirectory((), 0, f"directory {len(seen)} of the TIFF: {error}")
            return
        # valid directories do not overlap; crafted ones could make the walk extremely long
        taken += found.next_at - position
        if taken > len(data):
            yield TiffDirectory((), 0, f"directory {len(seen)} of the TIFF overlaps with others")
            return
        seen.add(position)
        yield found
        (position,) = struct.unpack_from(order + ("Q" if is_big else "I"), data, found.next_at)


def read_directory(data: BytesLike, order: str, is_big: bool, position: int) -> TiffDirectory:
    """The directory at ``position``.

    Raises:
        ValueError: it does not lie within ``data``.
    """
    count_bytes, entry_bytes, link_bytes = (8, 20, 8) if is_big else (2, 12, 4)
    size = len(data)
    if position + count_bytes > size:
        raise ValueError(f"it lies at byte {position}, beyond the end at {size}")
    (count,) = struct.unpack_from(order + ("Q" if is_big else "H"), data, position)
    first = position + count_bytes
    end = first + count * entry_bytes
    if end + link_bytes > size:
        raise ValueError(f"its {count} entries reach beyond the end at {size}")
    entry = struct.Struct(order + ("HHQQ" if is_big else "HHII"))
    entries: dict[int, TiffEntry] = {}
    problem = None
    taken = end + link_bytes - position
    for at in range(first, end, entry_bytes):
        tag, kind, values, offset = entry.unpack_from(data, at)
        width = TYPE_BYTES.get(kind)
        if width is None or tag in entries:
            continue  # as in libtiff, unknown types and repeated tags are ignored
        length = width * values
        taken += length
        if length <= link_bytes:
            offset = at + entry_bytes - link_bytes  # a value that fits is stored in the entry
        elif offset + length > size:
            problem = f"the value of tag {tag} in the directory at byte {position} reaches beyond the end at {size}"
        entries[tag] = TiffEntry(tag, kind, values, offset)
    return TiffDirectory(tuple(entries[tag] for tag in sorted(entries)), end, problem, taken)


def read_values(data: BytesLike, order: str, entry: TiffEntry) -> np.ndarray:
    """The values of an integer tag, as int64.

    Raises:
        ValueError: the tag is not an unsigned integer, or a value exceeds 63 bits.
    """
    dtype = _UNSIGNED.get(entry.type)
    if dtype is None:
        raise ValueError(f"tag {entry.tag} of the TIFF has type {entry.type}, which is no unsigned integer")
    found = np.frombuffer(data, np.dtype(order + dtype), entry.values, entry.at)
    if dtype == "u8" and entry.values and int(found.max()) > np.iinfo(np.int64).max:
        raise ValueError(f"tag {entry.tag} of the TIFF has a value beyond 63 bits")
    return found.astype(np.int64)


def read_number(
    data: BytesLike, order: str, entries: tuple[TiffEntry, ...], tag: int, default: int | None = None
) -> int:
    """The first value of an integer tag; ``default`` if the tag is missing.

    Raises:
        ValueError: the tag is missing without a default, or as for :func:`read_values`.
    """
    for entry in entries:
        if entry.tag == tag and entry.values:
            return int(read_values(data, order, entry._replace(values=1))[0])
    if default is None:
        raise ValueError(f"the TIFF frame lacks tag {tag}")
    return default
