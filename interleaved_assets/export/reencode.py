"""Encoding as JPEG of an image of any mode that Pillow reads."""

import io
from typing import Final, NamedTuple

import numpy as np
from PIL import Image

from interleaved_assets.model.errors import ImageError, row_error
from interleaved_assets.scoring.images.containers import Buffer
from interleaved_assets.scoring.images.decode import check_pixels
from interleaved_assets.scoring.images.jpeg_strips import check_jpeg_strips
from interleaved_assets.scoring.images.size import (
    DEFAULT_MAX_PIXELS,
    TURN_UPRIGHT,
    exif_orientation,
    open_header,
    pillow_result,
)

_GREY: Final = ("1", "L", "LA", "La")
_WITH_ALPHA: Final = ("LA", "PA", "RGBA")


class Jpeg(NamedTuple):
    """An encoded image; width and height in pixels."""

    content: bytes
    width: int
    height: int


def as_jpeg(data: Buffer, *, quality: int = 90, max_pixels: int = DEFAULT_MAX_PIXELS) -> Jpeg:
    """Encode the first frame of an image file as JPEG, upright; grey if its mode has no colours, else RGB.

    Transparent parts become white. 16-bit samples lose their low byte. 32-bit integer and float samples define no
    white: their smallest value becomes black and their largest white. CMYK is converted by Pillow's formula. The colour
    profile is kept if the colours are not converted.

    Args:
        data: the file's bytes.
        quality: 1 to 100.
        max_pixels: limit for width x height; a larger image is not decoded.

    Raises:
        ImageError: ``undecodable_image``, ``too_many_pixels``, or ``unencodable_image``: a side is longer than JPEG
            allows.
    """
    image = open_header(data, max_pixels=max_pixels)
    check_pixels(image, max_pixels)
    if image.format == "TIFF":
        check_jpeg_strips(data)
    orientation = exif_orientation(image)  # before loading, which may change the metadata
    pillow_result(image.load)
    profile = image.info.get("icc_profile") if image.mode in ("L", "RGB", "RGBA", "LA") else None
    if not isinstance(profile, bytes):  # the tag of a TIFF may have any type
        profile = None
    plain = pillow_result(lambda: _plain(image))
    if orientation in TURN_UPRIGHT:
        plain = plain.transpose(TURN_UPRIGHT[orientation])
    encoded = io.BytesIO()
    try:
        plain.save(encoded, "JPEG", quality=quality, icc_profile=profile)
    except (OSError, ValueError) as error:
        raise ImageError(
            row_error("unencodable_image", f"{plain.width} x {plain.height} pixels as JPEG: {error}")
        ) from error
    return Jpeg(encoded.getvalue(), *plain.size)


def _plain(image: Image.Image) -> Image.Image:
    """Convert ``image`` to mode L or RGB."""
    if image.mode.startswith("I;16"):
        samples = np.asarray(image)
        return Image.fromarray((samples >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        return _stretched(np.asarray(image, np.float64))
    target = "L" if image.mode in _GREY else "RGB"
    if image.mode == "La":  # grey that is multiplied by alpha; Pillow opens colours as RGBA
        image = image.convert("LA")
    if image.mode not in _WITH_ALPHA and not image.has_transparency_data:
        return image.convert(target)
    shown = image.convert("RGBA")
    below = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(below, shown).convert(target)


def _stretched(samples: np.ndarray) -> Image.Image:
    """Scale float samples, height x width: the smallest value becomes black, the largest white, NaN black."""
    finite = samples[np.isfinite(samples)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (np.clip(samples, low, high) - low) * (255 / (high - low)) if high > low else np.zeros(samples.shape)
    return Image.fromarray(np.nan_to_num(scaled).round().astype(np.uint8))
