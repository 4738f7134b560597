"""Find JPEGs that were cut, by their end mark: in a TIFF libtiff fills what one lacks with grey and reports no error.

The decoder itself refuses most of those that are files of their own, but not all progressive ones.
"""

from collections.abc import Sequence
from typing import Final

from interleaved_assets.io.storage.ranges import BlockReader
from interleaved_assets.io.tiff.directory import read_directory, read_header, read_number, read_values
from interleaved_assets.model.errors import ImageError, row_error
from interleaved_assets.scoring.images.containers import Buffer, bytes_of

_COMPRESSION, _JPEG = 259, 7
_PLACES: Final = ((324, 325), (273, 279))
"""The tags with offsets and lengths, of tiles and of strips."""
_SCAN, _END = b"\xff\xda", b"\xff\xd9"


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

    A strip without bytes was never written, and has none.
    """
    view = bytes_of(data)
    for number, (offset, count) in enumerate(zip(offsets, counts, strict=False)):
        if count and view[offset : offset + count][-2:] != _END:
            # a writer may have filled up the strip; within pixels, the byte after FF is never D9
            strip = bytes(view[offset : offset + count])
            if strip.rfind(_END) <= strip.rfind(_SCAN):
                return number
    return None
