"""Extraction of frames of multi-frame TIFFs without decoding pixels.

A frame is one image file directory (IFD) of the chain: a list of tags, two of which give the offsets and lengths of the
frame's strips or tiles. The frame is extracted by writing these strips or tiles unchanged after a directory with the
same tags and new offsets. The structure follows "TIFF Revision 6.0" (Adobe, 1992) and the BigTIFF design (libtiff);
both byte orders are read.

An extracted frame has no SubIFDs (further images, such as thumbnails) and no free-space lists. Exif and GPS directories
are kept, unless damaged.
"""

import struct
import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate
from operator import add, lt
from typing import Final, NamedTuple

from interleaved_assets.io.storage.ranges import BlockReader, Content
from interleaved_assets.io.tiff.directory import (
    BYTE_ORDERS,
    TYPE_BYTES,
    TiffDirectory,
    TiffEntries,
    read_chain,
    read_directory,
    read_header,
    read_number,
    read_values,
    value_bytes,
)

_KIND = 254
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_STRIP_OFFSETS, _SAMPLES, _ROWS_PER_STRIP, _STRIP_COUNTS, _PLANAR = 273, 277, 278, 279, 284
_FREE_OFFSETS, _FREE_COUNTS = 288, 289
_TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, _TILE_COUNTS, _SUB_IFDS = 322, 323, 324, 325, 330
_EXIF, _GPS, _INTEROP = 34665, 34853, 40965

_DIRECTORIES: Final = frozenset({_EXIF, _GPS, _INTEROP})
# Exif knows some 150 tags. Each frame may point to such a directory, and thousands to one of 65,535 entries.
_MOST_ENTRIES: Final = 256
_LEFT_OUT: Final = frozenset({_SUB_IFDS, _FREE_OFFSETS, _FREE_COUNTS})
_COUNTS: Final = frozenset({_STRIP_COUNTS, _TILE_COUNTS})
_REWRITTEN: Final = frozenset({_STRIP_OFFSETS, _TILE_OFFSETS}) | _COUNTS

_UNCOMPRESSED, _OLD_JPEG = 1, 6
_YCBCR = 6
_SHORT, _LONG, _LONG8 = 3, 4, 16
_INTEGERS: Final = (_SHORT, _LONG)


class TiffFrame(NamedTuple):
    """One frame: its size in pixels, and the data needed to extract it.

    A damaged directory is a frame too, so that other frames keep their numbers: ``error`` describes the damage, and
    width and height are 0.

    ``size`` is an upper bound, by a few bytes, of the extracted frame's size. Frames may share strips, so the sum of
    their sizes may exceed the file's size.

    ``is_reduced`` tells a smaller copy of another frame, such as a thumbnail.
    """

    width: int
    height: int
    order: str
    is_big: bool
    is_only: bool
    entries: TiffEntries
    size: int
    error: str | None = None
    is_reduced: bool = False


class _Field(NamedTuple):
    """A tag to write; its value as raw bytes, or the fields of the directory that it points to."""

    tag: int
    type: int
    values: int
    value: "bytes | list[_Field]"


def tiff_frames(tiff: BlockReader) -> list[TiffFrame]:
    """Return the frames of a TIFF in the order of the file, found by reading only its directories.

    A damaged directory becomes a frame with an ``error``, and so does a broken or circular chain.

    Raises:
        ValueError: ``tiff`` is not a TIFF, or has no directory.
        StorageError: its file has changed since it was opened.
    """
    order, is_big, position = read_header(tiff)
    frames = []
    read = 0
    for found in read_chain(tiff, order, is_big, position):
        if found.problem is None:
            read += sum(found.entries[tag].size for tag in found.entries.keys() & _COUNTS)
        # the sum of lengths that many frames share would take time proportional to the product of both
        frames.append(_frame(tiff, order, is_big, found, has_sum=read <= tiff.size))
    if not frames:
        raise ValueError("the TIFF has no frame")
    if len(frames) == 1:
        return [frames[0]._replace(is_only=True, size=tiff.size)]
    return frames


def frame_pieces(tiff: BlockReader, frame: TiffFrame) -> list[Content]:
    """Return the parts of a TIFF file with only this frame of ``tiff``; their concatenation is the file.

    All parts except the first are views into ``tiff``, or ranges of its file: pixel data are neither copied nor read.
    If the file has only one frame, the result is the whole file.

    Raises:
        ValueError: the frame is damaged, its strips or tiles exceed the file or are shorter than its pixels, or it is
            old-style JPEG (compression 6), whose tables are outside the strips.
        StorageError: as for :func:`tiff_frames`.
    """
    if frame.error is not None:
        raise ValueError(frame.error)
    if frame.is_only:
        return [tiff.data]
    offsets, counts = _segments(tiff, frame)
    fields = _fields(tiff, frame.entries, frame.order, frame.is_big)
    return _assemble(tiff, fields, offsets, counts, frame)


def _frame(tiff: BlockReader, order: str, is_big: bool, found: TiffDirectory, *, has_sum: bool) -> TiffFrame:
    problem = found.problem
    if problem is None:
        try:
            width, height = (read_number(tiff, order, found.entries, tag) for tag in (_WIDTH, _HEIGHT))
            size = _frame_bytes(tiff, order, is_big, found, has_sum=has_sum)
            kind = found.entries.get(_KIND)
            is_reduced = (
                kind is not None and kind.type in _INTEGERS and read_number(tiff, order, found.entries, _KIND, 0)
            )
            return TiffFrame(width, height, order, is_big, False, found.entries, size, is_reduced=bool(is_reduced & 1))
        except ValueError as error:
            problem = str(error)
    return TiffFrame(0, 0, order, is_big, False, {}, 0, problem)


def _frame_bytes(tiff: BlockReader, order: str, is_big: bool, found: TiffDirectory, *, has_sum: bool) -> int:
    size = found.value_bytes
    # without a sum of lengths, strips are within the file; if they overlap, extracting the frame fails
    pixels = tiff.size
    for tag in found.entries:
        if tag in _COUNTS and has_sum:
            pixels = sum(read_values(tiff, order, found.entries, tag))
        elif tag in _DIRECTORIES:
            size += _nested_bytes(tiff, found.entries, tag, order, is_big)
    return size + min(pixels, tiff.size)


def _nested_directory(tiff: BlockReader, entries: TiffEntries, tag: int, order: str, is_big: bool) -> TiffDirectory:
    """Return the Exif, GPS or interoperability directory that ``tag`` points to."""
    return read_directory(tiff, order, is_big, read_number(tiff, order, entries, tag), _MOST_ENTRIES)


def _nested_bytes(tiff: BlockReader, entries: TiffEntries, tag: int, order: str, is_big: bool, depth: int = 0) -> int:
    """Return the size of the Exif or GPS directory that ``tag`` points to; 0 if it is damaged and left out."""
    try:
        found = _nested_directory(tiff, entries, tag, order, is_big)
    except ValueError:
        return 0
    inner = _DIRECTORIES & found.entries.keys() if depth == 0 else ()
    return found.value_bytes + sum(_nested_bytes(tiff, found.entries, tag, order, is_big, 1) for tag in inner)


def _segments(tiff: BlockReader, frame: TiffFrame) -> tuple[Sequence[int], Sequence[int]]:
    """Return offsets and lengths in bytes of the strips or tiles."""
    if read_number(tiff, frame.order, frame.entries, _COMPRESSION, _UNCOMPRESSED) == _OLD_JPEG:
        raise ValueError("the TIFF frame is old-style JPEG (compression 6), which cannot be cut out: convert the TIFF")
    tag, counts_tag = _segment_tags(frame)
    if tag not in frame.entries:
        raise ValueError("the TIFF frame has neither strips nor tiles")
    if counts_tag not in frame.entries:
        raise ValueError("the TIFF frame does not say how long its strips or tiles are")
    offsets, counts = (read_values(tiff, frame.order, frame.entries, which) for which in (tag, counts_tag))
    if len(offsets) != len(counts):
        raise ValueError(f"the TIFF frame has {len(offsets)} strips or tiles, but {len(counts)} lengths")
    size, stated = tiff.size, sum(counts)
    if max(map(add, offsets, counts), default=0) > size:
        raise ValueError(f"a strip or tile of the TIFF frame reaches beyond the end at {size}")
    if stated > size:
        raise ValueError("strips or tiles of the TIFF frame overlap")
    # a strip at offset 0 was never written
    if 0 not in offsets:
        _check_raw(tiff, frame, counts)
    return offsets, counts


def _check_raw(tiff: BlockReader, frame: TiffFrame, counts: Sequence[int]) -> None:
    """Refuse strips or tiles that are shorter than their pixels, unless these are compressed or subsampled.

    Decoders read them in full, beyond the stated length, where a frame that was cut out has other bytes.
    """

    def number(tag: int, default: int) -> int:
        return read_number(tiff, frame.order, frame.entries, tag, default)

    if number(_COMPRESSION, _UNCOMPRESSED) != _UNCOMPRESSED or number(_PHOTOMETRIC, 0) == _YCBCR:
        return
    samples, planes = number(_SAMPLES, 1), 1
    if number(_PLANAR, 1) == 2:
        samples, planes = 1, samples
    bits = number(_BITS, 1) * samples
    row, stated = -(-frame.width * bits // 8), sum(counts)
    if stated < (needed := row * planes * frame.height):
        raise ValueError(f"the strips of the TIFF frame state {stated} bytes, and its pixels take {needed}")
    if _TILE_OFFSETS in frame.entries:
        lengths = [-(-number(_TILE_WIDTH, 0) * bits // 8) * number(_TILE_HEIGHT, 0)] * len(counts)
    else:
        rows = number(_ROWS_PER_STRIP, 0) or frame.height
        before_last = (frame.height - 1) // rows if rows else 0
        # before there are lengths of more strips than the frame has; readers take the strips of other frames as one
        if not counts or len(counts) != (before_last + 1) * planes:
            return
        lengths = ([row * rows] * before_last + [row * (frame.height - before_last * rows)]) * planes
    if any(map(lt, counts, lengths)):
        at = next(at for at, length in enumerate(lengths) if counts[at] < length)
        raise ValueError(
            f"strip or tile {at} of the TIFF frame states {counts[at]} bytes, and its pixels take {lengths[at]}"
        )


def _segment_tags(frame: TiffFrame) -> tuple[int, int]:
    """Return the tags of the offsets and the lengths of the strips or tiles."""
    return (_TILE_OFFSETS, _TILE_COUNTS) if _TILE_OFFSETS in frame.entries else (_STRIP_OFFSETS, _STRIP_COUNTS)


def _fields(tiff: BlockReader, entries: TiffEntries, order: str, is_big: bool, depth: int = 0) -> list[_Field]:
    """Return the tags to keep with their values, except those of strips and tiles, which :func:`_assemble` adds."""
    fields = []
    total = 0
    for tag, entry in entries.items():
        if tag in _LEFT_OUT or (not depth and tag in _REWRITTEN):
            continue
        if tag in _DIRECTORIES:
            nested = _nested(tiff, entries, tag, order, is_big, depth)
            if nested:
                fields.append(_Field(tag, _LONG8 if is_big else _LONG, 1, nested))
            continue
        total += entry.size
        if total > tiff.size:
            raise ValueError("values of the TIFF frame's tags overlap")
        fields.append(_Field(tag, entry.type, entry.values, value_bytes(tiff, entry)))
    return fields


def _nested(tiff: BlockReader, entries: TiffEntries, tag: int, order: str, is_big: bool, depth: int) -> list[_Field]:
    """Return the Exif, GPS or interoperability directory that ``tag`` points to; empty if it is damaged."""
    try:
        found = _nested_directory(tiff, entries, tag, order, is_big)
        # valid files nest at most one directory in the Exif directory; deeper nesting is a circle
        if found.problem is None and depth < 2:
            return _fields(tiff, found.entries, order, is_big, depth + 1)
    except ValueError:
        # the directory only has metadata of the photo, so the frame is kept without it
        pass
    return []


def _assemble(
    tiff: BlockReader, fields: list[_Field], offsets: Sequence[int], counts: Sequence[int], frame: TiffFrame
) -> list[Content]:
    order, is_big = frame.order, frame.is_big
    kind, code = (_LONG8, "Q") if is_big else (_LONG, "I")
    offsets_tag, counts_tag = _segment_tags(frame)
    many = len(offsets)
    if is_big:
        header = struct.pack(order + "2sHHHQ", b"II" if order == "<" else b"MM", 43, 8, 0, 16)
    else:
        header = struct.pack(order + "2sHI", b"II" if order == "<" else b"MM", 42, 8)
    # fields of the final length give the size of the directory, and so the offset of the first strip
    own = [_Field(tag, kind, many, bytes(many * TYPE_BYTES[kind])) for tag in (offsets_tag, counts_tag)]
    starts = list(accumulate(counts, initial=len(header) + len(_block(fields + own, 0, order, is_big))))
    if not is_big and starts[-1] >= 2**32:
        raise ValueError("the TIFF frame is too large for a classic TIFF")
    # an empty strip keeps offset 0: sparse files mark unwritten strips this way
    placed = [start if count else 0 for start, count in zip(starts, counts, strict=False)]
    values = (_stored(code, placed, order), _stored(code, counts, order))
    own = [field._replace(value=value) for field, value in zip(own, values, strict=True)]
    directory = _block(sorted(fields + own, key=lambda field: field.tag), len(header), order, is_big)
    pieces: list[Content] = [header + directory]
    # adjacent strips become one piece
    start = end = 0
    for offset, count in zip(offsets, counts, strict=True):
        if offset != end:
            if end > start:
                pieces.append(tiff.data[start:end])
            start = offset
        end = offset + count
    if end > start:
        pieces.append(tiff.data[start:end])
    return pieces


def _stored(code: str, numbers: Sequence[int], order: str) -> bytes:
    """Return ``numbers`` as values of a tag; ``code`` is their type in the module array."""
    values = array(code, numbers)
    if BYTE_ORDERS[order] != sys.byteorder:
        values.byteswap()
    return values.tobytes()


def _block(fields: list[_Field], at: int, order: str, is_big: bool) -> bytes:
    """Return a directory at offset ``at``, followed by the values that do not fit into its entries."""
    count_bytes, entry_bytes, link_bytes = (8, 20, 8) if is_big else (2, 12, 4)
    pack = struct.Struct(order + ("HHQ" if is_big else "HHI")).pack
    link = order + ("Q" if is_big else "I")
    end = at + count_bytes + entry_bytes * len(fields) + link_bytes
    parts = [struct.pack(order + ("Q" if is_big else "H"), len(fields))]
    behind = []
    for field in fields:
        value = _block(field.value, end, order, is_big) if isinstance(field.value, list) else field.value
        if isinstance(field.value, list) or len(value) > link_bytes:
            slot = struct.pack(link, end)
            value += bytes(len(value) % 2)  # values begin on even offsets
            behind.append(value)
            end += len(value)
        else:
            slot = value.ljust(link_bytes, b"\0")
        parts.append(pack(field.tag, field.type, field.values) + slot)
    return b"".join([*parts, bytes(link_bytes), *behind])
