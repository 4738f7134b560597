"""Width, height and aspect ratio of an image, from its header: nothing is decoded."""

import struct
from collections.abc import Callable
from io import BufferedReader
from typing import Final, TypeAlias, TypeVar

import pyarrow as pa
from PIL import Image, UnidentifiedImageError

from interleaved_assets.io.tiff.directory import read_directory, read_header, read_number
from interleaved_assets.model.errors import ImageError, row_error

T = TypeVar("T")

_HEADER_BYTES: Final = 4096
Buffer: TypeAlias = bytes | bytearray | memoryview | pa.Buffer

DEFAULT_MAX_PIXELS: Final = 89_478_485
"""Pixels above which an image is refused: Pillow's own limit for a decompression bomb, 256 MiB as RGB."""

Image.init()
IMAGE_FORMATS: Final = tuple(
    name
    for name in ("JPEG", "PNG", "TIFF", "WEBP", "GIF", "AVIF", "BMP", "JPEG2000", "ICO", "PPM")
    if name in Image.OPEN  # Pillow before 11.3 has no AVIF, and a name that it does not know fails every image
)
"""Formats with a signature of their own. Left out are those that are guessed at (TGA, PCX) or that run code (EPS)."""

# Pillow's plugins parse damaged files by hand, so what they raise says little about what is wrong.
_PILLOW_ERRORS: Final = (
    OSError,
    SyntaxError,
    ValueError,
    RuntimeError,
    TypeError,
    EOFError,
    struct.error,
    LookupError,
    ArithmeticError,
)

# Where the decoder turns pixels by the EXIF orientation. TIFF has the tag as one of its own, which Pillow's size
# heeds; no decoder turns AVIF by it.
_TURNED_BY_EXIF: Final = frozenset({"JPEG", "MPO", "PNG", "WEBP"})
_ORIENTATION_TAG: Final = 0x0112
_TIFF_SIGNATURES: Final = frozenset({b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"})
_WIDTH_TAG: Final = 0x0100
_HEIGHT_TAG: Final = 0x0101
_SIDEWAYS: Final = frozenset({5, 6, 7, 8})


def image_size(data: Buffer) -> tuple[int, int]:
    """Width and height in pixels, as the image is meant to be seen: the shape that ``decode_image`` gives it.

    The EXIF orientation is applied: a photo taken upright is higher than wide, whichever way the sensor lay. (NeMo
    Curator's aspect ratio takes the header's numbers as they stand, although it judges blur on the turned image.)

    Raises:
        ImageError: ``undecodable_image``, the bytes begin like none of :data:`IMAGE_FORMATS`; ``too_many_pixels``,
            Pillow refuses them as a decompression bomb (twice :data:`DEFAULT_MAX_PIXELS`).
    """
    return _tiff_size(data) or displayed_size(open_header(data))


def _tiff_size(data: Buffer) -> tuple[int, int] | None:
    """:func:`image_size` of a TIFF by our own parser, in a fifth of Pillow's time; None for what Pillow is to judge."""
    if bytes(data[:4]) not in _TIFF_SIGNATURES:
        return None
    try:
        order, is_big, first_at = read_header(data)
        first = read_directory(data, order, is_big, first_at)
        width = read_number(data, order, first.entries, _WIDTH_TAG)
        height = read_number(data, order, first.entries, _HEIGHT_TAG)
        orientation = read_number(data, order, first.entries, _ORIENTATION_TAG, 1)
    except ValueError:
        return None
    if not 0 < width * height <= DEFAULT_MAX_PIXELS:
        return None
    return (height, width) if orientation in _SIDEWAYS else (width, height)


def displayed_size(image: Image.Image) -> tuple[int, int]:
    """Width and height in pixels of an image whose header is open, its EXIF orientation applied."""
    return (image.height, image.width) if exif_orientation(image) in _SIDEWAYS else image.size


def aspect_ratio(width: int, height: int) -> float:
    """Width ÷ height: 1 for a square, above 1 for landscape, below 1 for portrait."""
    return width / height


def open_header(data: Buffer) -> Image.Image:
    """The image as Pillow knows it before decoding.

    Raises:
        ImageError: as :func:`image_size`.
    """
    if not len(data):
        raise ImageError(row_error("undecodable_image", "0 bytes"))
    # BytesIO would copy the whole image for the sake of its header
    file = BufferedReader(pa.BufferReader(data), _HEADER_BYTES)
    image = pillow_result(lambda: Image.open(file, formats=IMAGE_FORMATS))
    if min(image.size) < 1:
        raise ImageError(row_error("undecodable_image", f"the header says {image.width} x {image.height} pixels"))
    return image


def exif_orientation(image: Image.Image) -> int:
    """The orientation that the decoder goes by, 1 (upright) to 8; 1 where the tag is absent, damaged or not heeded."""
    # Image.getexif() would decode a PNG to look for the tag behind the pixels, and read XMP, which OpenCV does not
    block = image.info.get("exif")
    if image.format not in _TURNED_BY_EXIF or not block:
        return 1
    exif = Image.Exif()
    try:
        exif.load(block)
        return int(exif.get(_ORIENTATION_TAG, 1))
    except _PILLOW_ERRORS:
        return 1


def pillow_result(action: Callable[[], T]) -> T:
    """What ``action``, a call of Pillow's, returns.

    Raises:
        ImageError: the call failed on damaged data.
    """
    try:
        return action()
    except Image.DecompressionBombError as error:
        raise ImageError(row_error("too_many_pixels", str(error))) from error
    except UnidentifiedImageError as error:
        raise ImageError(row_error("undecodable_image", "no image format that is known")) from error
    except _PILLOW_ERRORS as error:
        detail = " ".join(str(error).split()) or type(error).__name__
        raise ImageError(row_error("undecodable_image", detail)) from error
