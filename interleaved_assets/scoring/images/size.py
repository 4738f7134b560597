"""Width, height and aspect ratio of an image, from its header, without decoding."""

import math
from collections.abc import Callable
from importlib import import_module
from io import BufferedReader
from typing import Final, TypeVar

import pyarrow as pa
from PIL import Image, UnidentifiedImageError

from interleaved_assets.io.rows.content_types import SNIFFED_BYTES, sniff
from interleaved_assets.model.errors import ImageError, row_error
from interleaved_assets.scoring.images.containers import Buffer, bytes_of, icon_image, png_chunks
from interleaved_assets.scoring.images.plain_jpeg import plain_jpeg
from interleaved_assets.scoring.images.plain_tiff import plain_tiff

T = TypeVar("T")

DEFAULT_MAX_PIXELS: Final = 89_478_485
"""Pixels above which an image is refused: Pillow's own limit for a decompression bomb, 256 MiB as RGB."""
_HEADER_BYTES: Final = 4096

Image.preinit()
# the formats that preinit leaves out; Image.init would load forty that are never opened, at the start of every command
for _plugin in ("Avif", "Ico", "Jpeg2K", "Tiff", "WebP"):
    import_module(f"PIL.{_plugin}ImagePlugin")
IMAGE_FORMATS: Final = tuple(
    name
    for name in ("JPEG", "PNG", "TIFF", "WEBP", "GIF", "AVIF", "BMP", "JPEG2000", "ICO", "PPM")
    if name in Image.OPEN  # a Pillow built without libavif has no AVIF; an unknown name fails every image
)
"""Formats with a signature. Formats that Pillow guesses (TGA, PCX) and EPS, which runs code, are left out."""

_NOT_DECODED: Final = frozenset({"image/heic", "image/jxl"})
# Formats to which the EXIF orientation is applied here. In TIFF it is a regular tag, which decoders and Pillow's size
# apply; AVIF stores it in boxes.
_TURNED_BY_EXIF: Final = frozenset({"JPEG", "MPO", "PNG", "WEBP"})
_ORIENTATION_TAG: Final = 0x0112
_SIDEWAYS: Final = frozenset({5, 6, 7, 8})
TURN_UPRIGHT: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""The transposition that turns an image of Pillow upright, by EXIF orientation."""


def image_size(data: Buffer) -> tuple[int, int]:
    """Return width and height in pixels with the EXIF orientation applied: the shape of ``decode_image``'s result.

    (NeMo Curator's aspect ratio ignores the orientation, although its blur filter applies it.)

    Raises:
        ImageError: ``undecodable_image``, the file has none of the formats :data:`IMAGE_FORMATS`; ``too_many_pixels``,
            Pillow refuses it as a decompression bomb (twice :data:`DEFAULT_MAX_PIXELS`).
    """
    size = plain_jpeg(data)
    if size is None and (header := plain_tiff(data)) is not None:
        size = header.width, header.height
    return displayed_size(open_header(data)) if size is None or math.prod(size) > DEFAULT_MAX_PIXELS else size


def displayed_size(image: Image.Image) -> tuple[int, int]:
    """Return width and height in pixels of an image whose header is open, with its EXIF orientation applied."""
    return (image.height, image.width) if exif_orientation(image) in _SIDEWAYS else image.size


def aspect_ratio(width: int, height: int) -> float:
    """Return width ÷ height: 1 for a square, above 1 for landscape, below 1 for portrait."""
    return width / height


def open_header(data: Buffer, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> Image.Image:
    """Open an image with Pillow without decoding it; for an ICO file that contains a PNG, that PNG.

    Args:
        data: the file's bytes.
        max_pixels: limit for width x height of a bitmap in an ICO file, which Pillow decodes on opening.

    Raises:
        ImageError: as :func:`image_size`; ``undecodable_image`` also if a PNG chunk is longer than the file.
    """
    if not len(data):
        raise ImageError(row_error("undecodable_image", "0 bytes"))
    view = icon_image(bytes_of(data), max_pixels)
    for _ in png_chunks(view):
        pass  # raises if one is longer than the file
    try:
        return pillow_result(lambda: Image.open(_HeaderFile(view), formats=IMAGE_FORMATS))
    except ImageError as error:
        kind = sniff(bytes(view[:SNIFFED_BYTES])) if isinstance(error.__cause__, UnidentifiedImageError) else None
        if kind is None:
            raise
        why = "which is not decoded: convert it" if kind in _NOT_DECODED else "damaged or of a kind that is not decoded"
        raise ImageError(row_error("undecodable_image", f"{kind}, {why}")) from error


class _HeaderFile(BufferedReader):
    """An image file in memory. BytesIO would copy the whole file to read its header."""

    def __init__(self, data: memoryview) -> None:
        super().__init__(pa.BufferReader(data), _HEADER_BYTES)
        self._size = len(data)

    def read(self, size: int | None = -1, /) -> bytes:
        """Limit the size first: the base class allocates it, and damaged headers state lengths up to 4 GB."""
        return super().read(size if size is None else min(size, self._size))


def exif_orientation(image: Image.Image) -> int:
    """Return the EXIF orientation to apply, 1 (upright) to 8; 1 if the tag is absent or damaged."""
    # Image.getexif() would decode a PNG to find the tag after the pixels, and read XMP
    block = image.info.get("exif")
    if image.format not in _TURNED_BY_EXIF or not block:
        return 1
    exif = Image.Exif()
    try:
        exif.load(block)
        orientation = int(exif.get(_ORIENTATION_TAG, 1))
    except Exception:  # noqa: BLE001 - Pillow does not check tags, and raises exceptions of any type
        return 1
    return orientation if 1 <= orientation <= 8 else 1


def pillow_result(action: Callable[[], T]) -> T:
    """Return the result of ``action``, a call of Pillow; raise ImageError if it fails, as on damaged data."""
    try:
        return action()
    except Image.DecompressionBombError as error:
        raise ImageError(row_error("too_many_pixels", str(error))) from error
    except UnidentifiedImageError as error:
        raise ImageError(row_error("undecodable_image", "no image format that is known")) from error
    except Exception as error:  # on damaged files, Pillow's plugins raise exceptions of any type
        detail = " ".join(str(error).split()) or type(error).__name__
        raise ImageError(row_error("undecodable_image", detail)) from error
