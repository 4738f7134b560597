"""RGB pictures in TIFF whose header holds nothing unusual: read without Pillow, and raw pixels without a decoder.

Frames of MINT-1T's documents are such files. Pillow takes 0.4 ms to open one, and libtiff 0.6 ms to copy the pixels of
one that is not compressed; together that is a third of what scoring it costs. Pillow and OpenCV read every file with
tags that are not listed here, and the tests compare pixels with theirs.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import cv2
import numpy as np
from cv2.typing import MatLike

from interleaved_assets.io.storage.ranges import BlockReader
from interleaved_assets.io.tiff.directory import read_directory, read_header, read_number, read_values
from interleaved_assets.scoring.images.containers import Buffer, bytes_of
from interleaved_assets.scoring.images.jpeg_strips import strip_without_end

_SIGNATURES: Final = (b"II*\0", b"MM\0*")
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_OFFSETS, _SAMPLES, _ROWS, _COUNTS = 273, 277, 278, 279
_REQUIRED: Final = frozenset({_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _OFFSETS, _SAMPLES, _ROWS, _COUNTS})
_SINGLE: Final = (_WIDTH, _HEIGHT, _SAMPLES, _ROWS, _COMPRESSION, _PHOTOMETRIC)
_NUMBERS: Final[Mapping[int, int]] = {254: 0, 266: 1, 274: 1, 284: 1}
"""Tags that may be present with this value, their default: kind of image, bit order, orientation, layout of samples."""
_IGNORED: Final = frozenset({270, 271, 272, 282, 283, 296, 305, 306, 315, 347, 530, 531, 532})
"""Tags that change no pixel, or that only the JPEG codec reads: texts, resolution, JPEG tables, subsampling."""
_SHORT_OR_LONG: Final = (3, 4)
_RAW, _JPEG = 1, 7
_RGB, _YCBCR = 2, 6
_SIDE_OF_OPENCV: Final = 2**20  # OpenCV's limit


class PlainTiff(NamedTuple):
    """The header of such a file: width and height in pixels, and where its pixels are, as (offset, bytes)."""

    width: int
    height: int
    strips: tuple[tuple[int, int], ...] | None
    """The strips if they are raw pixels."""
    photo: tuple[int, int] | None = None
    """The only strip if it is a whole JPEG file."""


def plain_tiff(data: Buffer) -> PlainTiff | None:
    """Return the header if the first frame is an upright RGB picture of 8 bits in strips, raw or JPEG; else None."""
    if bytes(data[:4]) not in _SIGNATURES:
        return None
    try:
        tiff = BlockReader(bytes_of(data))
        order, is_big, first_at = read_header(tiff)
        found = read_directory(tiff, order, is_big, first_at)
        entries = found.entries
        others = entries.keys() - _REQUIRED - _IGNORED
        if found.problem or not entries.keys() >= _REQUIRED or not others <= _NUMBERS.keys():
            return None
        # Pillow refuses several values, and other types
        if any(entries[tag].values != 1 for tag in (*_SINGLE, *others)):
            return None
        if any(entries[tag].type not in _SHORT_OR_LONG for tag in (*_REQUIRED, *others)):
            return None
        if any(read_number(tiff, order, entries, tag) != _NUMBERS[tag] for tag in others):
            return None
        width, height, samples, rows, compression, colours = (read_number(tiff, order, entries, tag) for tag in _SINGLE)
        bits, offsets, counts = (list(read_values(tiff, order, entries, tag)) for tag in (_BITS, _OFFSETS, _COUNTS))
    except ValueError:
        return None
    is_rgb = samples == 3 and bits == [8, 8, 8]
    if not (is_rgb and 0 < width <= _SIDE_OF_OPENCV and 0 < height <= _SIDE_OF_OPENCV and rows > 0):
        return None
    if len(offsets) != -(-height // rows) or len(counts) != len(offsets):
        return None
    if compression == _JPEG and colours in (_RGB, _YCBCR):
        if strip_without_end(data, offsets, counts) is not None:
            return None
        photo = (offsets[0], counts[0])
        is_file = len(offsets) == 1 and colours == _YCBCR and _is_jpeg_file(data, *photo)
        return PlainTiff(width, height, None, photo if is_file else None)
    lines = [min(rows, height - first) for first in range(0, height, rows)]
    is_raw = (compression, colours) == (_RAW, _RGB) and counts == [count * width * 3 for count in lines]
    if not is_raw or any(offset + count > tiff.size for offset, count in zip(offsets, counts, strict=True)):
        return None
    return PlainTiff(width, height, tuple(zip(offsets, counts, strict=True)))


def _is_jpeg_file(data: Buffer, offset: int, size: int) -> bool:
    """Return whether these bytes are a JPEG file of JFIF, whose colours are YCbCr whatever else it states."""
    view = bytes_of(data)
    start = bytes(view[offset : offset + 11])
    return offset + size <= len(view) and start[:4] == b"\xff\xd8\xff\xe0" and start[6:] == b"JFIF\0"


def raw_pixels(data: Buffer, header: PlainTiff) -> MatLike:
    """Return the pixels of raw strips: height x width x 3, uint8, blue-green-red."""
    assert header.strips is not None
    content = np.frombuffer(data, np.uint8)
    rgb = np.concatenate([content[offset : offset + count] for offset, count in header.strips])
    return cv2.cvtColor(rgb.reshape(header.height, header.width, 3), cv2.COLOR_RGB2BGR)
