"""Reading of the directories of a TIFF: the tags and the positions of their values, but no pixels.

Of a TIFF in a file, only the blocks around its directories are read.
"""

import struct
import sys
from array import array
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

from interleaved_assets.io.storage.ranges import BlockReader

# bytes per value of each field type: BYTE, ASCII, SHORT, LONG, RATIONAL, signed and float types, BigTIFF types
TYPE_BYTES: Final = dict(
    zip((*range(1, 14), 16, 17, 18), (1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 8, 8, 8), strict=True)
)
# type codes of the module array
_UNSIGNED: Final = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}
_MAX: Final = 2**63 - 1

BYTE_ORDERS: Final[dict[str, Literal["little", "big"]]] = {"<": "little", ">": "big"}


class TiffEntry(NamedTuple):
    """One tag of a directory: type and number of its values, and their bytes if they fit into the entry.

    Otherwise ``value`` is the offset of the values in the file.
    """

    type: int
    values: int
    value: bytes | int

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return TYPE_BYTES[self.type] * self.values


TiffEntries: TypeAlias = dict[int, TiffEntry]
"""The entries of a directory by tag, in ascending order."""


class TiffDirectory(NamedTuple):
    """The tags of one image.

    Attributes:
        entries: by tag.
        size: bytes of the directory, without values that do not fit into their entries.
        next: offset of the next directory, 0 if it is the last.
        problem: damage of the directory, None if it is undamaged.
        value_bytes: bytes of the directory and of all values.
    """

    entries: TiffEntries
    size: int = 0
    next: int = 0
    problem: str | None = None
    value_bytes: int = 0


def read_header(tiff: BlockReader) -> tuple[str, bool, int]:
    """Return the byte order, whether it is a BigTIFF, and the offset of the first directory."""
    head = tiff.read(0, 16)
    order = {b"II": "<", b"MM": ">"}.get(head[:2])
    if order is None or len(head) < 8:
        raise ValueError("not a TIFF: it does not begin with a TIFF header")
    (magic,) = struct.unpack_from(order + "H", head, 2)
    if magic == 42:
        return order, False, struct.unpack_from(order + "I", head, 4)[0]
    if magic == 43 and len(head) >= 16 and struct.unpack_from(order + "HH", head, 4) == (8, 0):
        return order, True, struct.unpack_from(order + "Q", head, 8)[0]
    raise ValueError(f"not a TIFF: version {magic} in its header")


def read_chain(tiff: BlockReader, order: str, is_big: bool, position: int) -> Iterator[TiffDirectory]:
    """Yield the directories from ``position``; if one breaks the chain, it is the last."""
    seen: set[int] = set()
    taken = 0
    while position:
        if position in seen:
            yield TiffDirectory({}, problem=f"directory {len(seen)} of the TIFF leads back to an earlier one")
            return
        try:
            found = read_directory(tiff, order, is_big, position)
        except ValueError as error:
            yield TiffDirectory({}, problem=f"directory {len(seen)} of the TIFF: {error}")
            return
        # valid directories do not overlap; crafted ones could make the walk extremely long
        taken += found.size
        if taken > tiff.size:
            yield TiffDirectory({}, problem=f"directory {len(seen)} of the TIFF overlaps with others")
            return
        seen.add(position)
        yield found
        position = found.next


def read_directory(
    tiff: BlockReader, order: str, is_big: bool, position: int, most_entries: int = 2**16
) -> TiffDirectory:
    """Return the directory at ``position``.

    Raises:
        ValueError: it is not within ``tiff``, or has more than ``most_entries`` entries.
    """
    count_bytes, entry_bytes, link_bytes = (8, 20, 8) if is_big else (2, 12, 4)
    size = tiff.size
    if position + count_bytes > size:
        raise ValueError(f"it lies at byte {position}, beyond the end at {size}")
    byte_order = BYTE_ORDERS[order]
    count = int.from_bytes(tiff.read(position, count_bytes), byte_order)
    if count > most_entries:
        raise ValueError(f"it has {count} entries, more than {most_entries}")
    end = position + count_bytes + count * entry_bytes
    if end + link_bytes > size:
        raise ValueError(f"its {count} entries reach beyond the end at {size}")
    block = tiff.read(position + count_bytes, count * entry_bytes + link_bytes)
    entries: TiffEntries = {}
    problem = None
    taken = end + link_bytes - position
    for tag, kind, values, slot in struct.iter_unpack(order + ("HHQ8s" if is_big else "HHI4s"), block[:-link_bytes]):
        width = TYPE_BYTES.get(kind)
        if width is None or tag in entries:
            continue  # as in libtiff, unknown types and repeated tags are ignored
        length = width * values
        taken += length
        if length <= link_bytes:
            entries[tag] = TiffEntry(kind, values, slot[:length])
            continue
        offset = int.from_bytes(slot, byte_order)
        if offset + length > size:
            problem = f"the value of tag {tag} in the directory at byte {position} reaches beyond the end at {size}"
        entries[tag] = TiffEntry(kind, values, offset)
    following = int.from_bytes(block[-link_bytes:], byte_order)
    return TiffDirectory(dict(sorted(entries.items())), end - position, following, problem, taken)


def value_bytes(tiff: BlockReader, entry: TiffEntry) -> bytes:
    """Return the values of ``entry`` as they are stored, fewer if they reach beyond the end."""
    return entry.value[: entry.size] if isinstance(entry.value, bytes) else tiff.read(entry.value, entry.size)


def read_values(tiff: BlockReader, order: str, entries: TiffEntries, tag: int) -> "array[int]":
    """Return the values of an integer tag.

    Raises:
        ValueError: the tag is not an unsigned integer, a value exceeds 63 bits, or the values exceed the file.
    """
    entry = entries[tag]
    # not numpy: most tags have few values, for which its calls take several times as long
    code = _UNSIGNED.get(entry.type)
    if code is None:
        raise ValueError(f"tag {tag} of the TIFF has type {entry.type}, which is no unsigned integer")
    stored = value_bytes(tiff, entry)
    if len(stored) < entry.size:
        raise ValueError(f"the value of tag {tag} of the TIFF reaches beyond the end at {tiff.size}")
    values = array(code, stored)
    if BYTE_ORDERS[order] != sys.byteorder:
        values.byteswap()
    if code == "Q" and max(values, default=0) > _MAX:
        raise ValueError(f"tag {tag} of the TIFF has a value beyond 63 bits")
    return values


def read_number(tiff: BlockReader, order: str, entries: TiffEntries, tag: int, default: int | None = None) -> int:
    """Return the first value of an integer tag; ``default`` if the tag is missing or has no value."""
    entry = entries.get(tag)
    if entry is None or not entry.values:
        if default is None:
            raise ValueError(f"the TIFF frame lacks tag {tag}")
        return default
    return read_values(tiff, order, {tag: entry._replace(values=1)}, tag)[0]
