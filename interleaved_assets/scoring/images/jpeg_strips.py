"""Find JPEGs that were cut, by their end mark: in a TIFF libtiff fills what one lacks with grey and reports no error.

The decoder itself refuses most of those that are files of their own, but not all progressive ones.
"""

import re
from collections.abc import Sequence
from typing import Final

from interleaved_assets.io.storage.ranges import BlockReader
from interleaved_assets.io.tiff.directory import read_directory, read_header, read_number, read_values
from interleaved_assets.model.errors import ImageError, row_error
from interleaved_assets.scoring.images.containers import Buffer, bytes_of

_COMPRESSION, _JPEG = 259, 7
_PLACES: Final = ((324, 325), (273, 279))
"""The tags with offsets and lengths, of tiles and of strips."""
_START, _END = b"\xff\xd8", b"\xff\xd9"
_MARKER: Final = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])", re.DOTALL)
"""A marker other than those of restarts; within pixels, 0 follows each byte FF.

Bytes FF before one fill space. A pattern that takes them too needs time with the square of their number.
"""


def check_jpeg_strips(data: Buffer) -> None:
    """Raise ImageError (``undecodable_image``) if a strip or tile of the first frame is a JPEG without its end mark.

    Does nothing for a TIFF of another compression, and for one whose tags the decoder has to judge.
    """
    tiff = BlockReader(bytes_of(data))
    try:
        order, is_big, first_at = read_header(tiff)
        entries = read_directory(tiff, order, is_big, first_at).entries
        if read_number(tiff, order, entries, _COMPRESSION, 1) != _JPEG:
            return
        places = next((tags for tags in _PLACES if entries.keys() >= {*tags}), None)
        if places is None:
            return
        offsets, counts = (read_values(tiff, order, entries, tag) for tag in places)
    except ValueError:
        return
    if (number := strip_without_end(data, offsets, counts)) is not None:
        detail = f"strip or tile {number} of the TIFF is a JPEG without its end mark: it is cut or damaged"
        raise ImageError(row_error("undecodable_image", detail))


def strip_without_end(data: Buffer, offsets: Sequence[int], counts: Sequence[int]) -> int | None:
    """Return the number of the first JPEG at these places that has no end mark; None if all have one.

    A strip without bytes was never written, and has none. Strips at one place are searched once. If others overlap so
    that they take more than twice the file, the next one counts as cut: time would grow with the square of the file.
    """
    view = bytes_of(data)
    places, left = list(zip(offsets, counts, strict=False)), 2 * len(view)
    for offset, count in dict.fromkeys(places):
        strip = view[offset : offset + count]
        left -= len(strip)
        if count and (left < 0 or not _has_end(strip)):
            return places.index((offset, count))
    return None


def _has_end(jpeg: memoryview | bytes) -> bool:
    """Return whether the end mark follows the segments and pixels of a JPEG.

    Bytes behind it do not count: writers fill up a strip, and phones append a film to a photo.
    """
    if jpeg[-2:] == _END:
        return True
    content, at = bytes(jpeg), len(_START)
    while marker := _MARKER.search(content, at):
        if marker[1] == _END[1:]:
            return True
        at = marker.end() + int.from_bytes(content[marker.end() : marker.end() + 2])
    return False
