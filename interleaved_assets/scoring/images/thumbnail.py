"""Small pictures of images: thumbnails, and larger previews of a few images.

Thumbnails of images that will be shown are made when they are scored, so that they need not be decoded again.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import cv2

from interleaved_assets.io.rows.processors import processors
from interleaved_assets.model.errors import ImageError
from interleaved_assets.scoring.images.containers import Buffer
from interleaved_assets.scoring.images.decode import BgrImage, decode_image, one_image
from interleaved_assets.scoring.images.decoders import decoders_for_threads

THUMBNAIL_COLUMN: Final = "thumbnail"
"""Column of the scorer ``thumbnail``: a small picture as a JPEG."""
SIDE: Final = 128
"""Longest side in pixels."""
PREVIEW_SIDE: Final = 320
SMALL_SIDE: Final = 64
_QUALITY: Final = 75
_PREVIEW_QUALITY: Final = 60
_SMALL_QUALITY: Final = 30


def thumbnail(image: BgrImage) -> bytes:
    """Return ``image`` as a JPEG of at most 128 pixels on its longer side, about 3 KB; it is never enlarged."""
    _, encoded = cv2.imencode(".jpg", _fitted(image, SIDE), [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    return encoded.tobytes()


def smaller_thumbnail(stored: bytes, side: int = SMALL_SIDE) -> bytes:
    """Return a thumbnail as a WebP of at most ``side`` pixels on its longer side; 64 pixels take about 600 bytes."""
    return _webp(_fitted(decode_image(stored), side), _SMALL_QUALITY)


def previews(images: Sequence[Buffer]) -> list[bytes | None]:
    """Return each image as a WebP of at most 320 pixels on its longer side, about 10 KB; None if decoding fails."""
    return _pictures(images, lambda image: _webp(_fitted(image, PREVIEW_SIDE), _PREVIEW_QUALITY))


def thumbnails(images: Sequence[Buffer]) -> list[bytes | None]:
    """Return :func:`thumbnail` of each encoded image; None if decoding fails."""
    return _pictures(images, thumbnail)


def _pictures(images: Sequence[Buffer], draw: Callable[[BgrImage], bytes]) -> list[bytes | None]:
    def picture(data: Buffer) -> bytes | None:
        try:
            with one_image("decode"):
                return draw(decode_image(data))
        except ImageError:  # the error of such an image is among its scores
            return None

    with decoders_for_threads(), ThreadPoolExecutor(processors(), thread_name_prefix="picture") as pool:
        return list(pool.map(picture, images))


def _fitted(image: BgrImage, side: int) -> BgrImage:
    """Return ``image``, made smaller if its longer side has more than ``side`` pixels.

    Blocks of whole pixels are averaged first, and the rest of the way, less than half, is interpolated: this takes a
    fifth of the time of one average over fractions of pixels, and a small picture looks the same.
    """
    height, width = image.shape[:2]
    scale = min(1.0, side / max(height, width))
    if scale == 1:
        return image
    size = max(1, round(width * scale)), max(1, round(height * scale))
    block = int(1 / scale)
    if block > 1 and min(height, width) >= block:
        whole = width // block, height // block
        image = image[: whole[1] * block, : whole[0] * block]
        image = cv2.resize(image, whole, interpolation=cv2.INTER_AREA)
    return cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)


def _webp(image: BgrImage, quality: int) -> bytes:
    _, encoded = cv2.imencode(".webp", image, [cv2.IMWRITE_WEBP_QUALITY, quality])
    return encoded.tobytes()
