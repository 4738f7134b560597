"""Thumbnails for contact sheets, made when the image is scored, so that it need not be decoded again."""

from typing import Final

import cv2

from interleaved_assets.scoring.decode import BgrImage

THUMBNAIL_COLUMN: Final = "thumbnail"
SIDE: Final = 128
"""Longest side in pixels."""
_QUALITY: Final = 75


def thumbnail(image: BgrImage) -> bytes:
    """``image`` as a JPEG of at most 128 pixels on its longer side, about 3 KB; smaller images are not enlarged.

    Args:
        image: height x width x 3, uint8, blue-green-red.
    """
    height, width = image.shape[:2]
    scale = min(1.0, SIDE / max(height, width))
    if scale < 1:
        size = max(1, round(width * scale)), max(1, round(height * scale))
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    _, encoded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    return encoded.tobytes()
