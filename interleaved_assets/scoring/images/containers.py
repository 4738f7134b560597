"""Checks of PNG chunk lengths and of ICO images before a decoder reads the file.

Decoders allocate the length that a header states before they check that so many bytes exist, and Pillow decodes an ICO
file when it opens it.
"""

import math
import struct
from collections.abc import Iterator
from typing import Final, TypeAlias

import pyarrow as pa

from interleaved_assets.model.errors import ImageError, row_error

Buffer: TypeAlias = bytes | bytearray | memoryview | pa.Buffer

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_ICON: Final = b"\0\0\1\0"
_BYTES_OF_A_CHUNK_WITHOUT_CONTENT: Final = 12
_ICON_ENTRY: Final = struct.Struct("<BBBxHHII")
_OLD_BITMAP_HEADER: Final = 12


def bytes_of(data: Buffer) -> memoryview:
    """Return a view of ``data`` as unsigned bytes, not copied; an Arrow buffer's own view has signed bytes."""
    return memoryview(data).cast("B")


def png_chunks(data: Buffer) -> Iterator[bytes]:
    """Yield the names of a PNG's chunks, up to ``IEND`` or the end of the file; nothing for other formats.

    Raises:
        ImageError: ``undecodable_image``, a chunk is longer than the rest of the file.
    """
    view = bytes_of(data)
    start = len(_PNG) if view[: len(_PNG)] == _PNG else len(view)
    kind = b""
    while kind != b"IEND" and start + 8 <= len(view):
        length = int.from_bytes(view[start : start + 4], "big")
        kind = bytes(view[start + 4 : start + 8])
        start += _BYTES_OF_A_CHUNK_WITHOUT_CONTENT + length
        if start > len(view):
            name, missing = kind.decode("ascii", "backslashreplace"), start - len(view)
            detail = f"image file is truncated: PNG chunk {name} of {length} bytes, {missing} are missing"
            raise ImageError(row_error("undecodable_image", detail))
        yield kind


def icon_image(data: memoryview, max_pixels: int) -> memoryview:
    """Return the PNG file inside an ICO file whose largest image is a PNG; ``data`` itself for any other file.

    Raises:
        ImageError: ``too_many_pixels``, the largest image is a bitmap above the limit; ``undecodable_image``, the file
            ends before it.
    """
    if data[: len(_ICON)] != _ICON:
        return data
    try:
        start, size = _largest_entry(data)
        if data[start : start + len(_PNG)] == _PNG:
            return data[start : start + size]
        width, height = _bitmap_size(data, start)
    except (struct.error, ValueError) as error:
        raise ImageError(row_error("undecodable_image", f"the ICO file ends before its image: {error}")) from error
    if width * height > max_pixels:
        raise ImageError(row_error("too_many_pixels", f"{width} x {height} pixels, the limit is {max_pixels}"))
    return data


def _largest_entry(data: memoryview) -> tuple[int, int]:
    """Return offset and size of the image that Pillow selects: the largest, and of equal ones that of lowest depth."""
    (count,) = struct.unpack_from("<H", data, 4)
    entries = (_ICON_ENTRY.unpack_from(data, 6 + _ICON_ENTRY.size * number) for number in range(count))
    # min returns the first of equal entries, as Pillow's stable sorts do
    *_, size, start = min(entries, key=lambda entry: (-(entry[0] or 256) * (entry[1] or 256), _depth(*entry[2:5])))
    return start, size


def _depth(colours: int, _planes: int, bits: int) -> int:
    return bits or (math.ceil(math.log2(colours)) if colours else 0) or 256


def _bitmap_size(data: memoryview, start: int) -> tuple[int, int]:
    """Return width and height of a bitmap in an ICO file; the height in its header includes the mask."""
    (header,) = struct.unpack_from("<I", data, start)
    width, height = struct.unpack_from("<HH" if header == _OLD_BITMAP_HEADER else "<ii", data, start + 4)
    return abs(width), abs(height) // 2
