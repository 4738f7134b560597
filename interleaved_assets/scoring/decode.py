"""Bytes of an image file to pixels, once for all scorers.

OpenCV decodes; what it cannot read (16-bit CMYK in TIFF, ICO, …) goes to Pillow. Both look at the first frame only.
What is measured therefore means the same as in NeMo Curator, which decodes with ``cv2.imdecode(…, IMREAD_COLOR)``:

- the EXIF orientation is applied, also to PNG and WebP;
- transparency is dropped, not blended;
- 16 bits a channel become 8 by leaving out the low byte; CMYK becomes RGB by OpenCV's formula, without a profile.

Damage is an :class:`~interleaved_assets.model.errors.ImageError` and never an image: a truncated file is refused.
Damage that a format cannot show (flipped bits in the middle of a JPEG, which has no checksum) goes unnoticed, as with
every decoder.
"""

from typing import Final

import cv2
import numpy as np
from cv2.typing import MatLike
from PIL import Image, ImageOps

from interleaved_assets.model.errors import ImageError, row_error
from interleaved_assets.scoring.size import DEFAULT_MAX_PIXELS, Buffer, exif_orientation, open_header, pillow_result

BgrImage = MatLike
"""Height x width x 3, uint8, the channels blue, green, red: OpenCV's order."""

# 32-bit integer and float samples: no value of theirs is "white", so bringing them to 8 bits would invent a picture
_NO_PICTURE: Final = ("I", "F")


def decode_image(data: Buffer, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> BgrImage:
    """The first frame of an image file.

    Args:
        data: the file's bytes, in one of :data:`~interleaved_assets.scoring.size.IMAGE_FORMATS`.
        max_pixels: width x height above which nothing is decoded; read from the header.

    Returns:
        Pixels, height x width x 3, uint8, blue-green-red, turned the way the EXIF orientation says.

    Raises:
        ImageError: ``undecodable_image`` or ``too_many_pixels``.
    """
    return decode_opened(open_header(data), data, max_pixels=max_pixels)


def decode_opened(header: Image.Image, data: Buffer, *, max_pixels: int) -> BgrImage:
    """:func:`decode_image` for an image whose header is open already."""
    if header.width * header.height > max_pixels:
        raise ImageError(
            row_error("too_many_pixels", f"{header.width} x {header.height} pixels, the limit is {max_pixels}")
        )
    image = _decode_with_opencv(data)
    return _decode_with_pillow(header) if image is None else image


def _decode_with_opencv(data: Buffer) -> BgrImage | None:
    try:
        return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    except cv2.error:
        # imdecode answers most damage with None and some with an exception; either way Pillow has the last word
        return None


def _decode_with_pillow(image: Image.Image) -> BgrImage:
    if image.mode.startswith(_NO_PICTURE):
        raise ImageError(row_error("undecodable_image", f"samples of mode {image.mode!r} have no defined white"))
    turned = exif_orientation(image) != 1
    pillow_result(image.load)
    if turned:
        image = pillow_result(lambda: ImageOps.exif_transpose(image))
    rgb = np.asarray(pillow_result(lambda: image.convert("RGB")))
    return np.ascontiguousarray(rgb[..., ::-1])
