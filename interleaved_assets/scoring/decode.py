"""Bytes of an image file to pixels, once for all scorers.

OpenCV decodes most images; Pillow decodes what OpenCV cannot read, and what OpenCV 5.0 reads wrongly without an error
(:func:`_is_for_pillow`). Both look at the first frame only. What is measured therefore means the same as in NeMo
Curator, which decodes with ``cv2.imdecode(…, IMREAD_COLOR)``, wherever that is right:

- the EXIF orientation is applied, also to PNG and WebP, by the one function that also measures the size;
- transparency is dropped, not blended;
- 16 bits a channel become 8 by leaving out the low byte; CMYK becomes RGB by OpenCV's formula, without a profile.

Damage is an :class:`~interleaved_assets.model.errors.ImageError` and never an image: a truncated file is refused.
Damage that a format cannot show (flipped bits in the middle of a JPEG, which has no checksum) goes unnoticed, as with
every decoder.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import cv2
import numpy as np
from cv2.typing import MatLike
from PIL import Image

from interleaved_assets.model.errors import ImageError, InterleavedError, row_error
from interleaved_assets.scoring.containers import Buffer, png_chunks
from interleaved_assets.scoring.size import DEFAULT_MAX_PIXELS, exif_orientation, open_header, pillow_result

BgrImage = MatLike
"""Height x width x 3, uint8, the channels blue, green, red: OpenCV's order."""

# 32-bit integer and float samples: no value of theirs is "white", so bringing them to 8 bits would invent a picture
_NO_PICTURE: Final = ("I", "F")

_TURN_BACK: Final[Mapping[int, Callable[[BgrImage], BgrImage]]] = {
    2: lambda image: cv2.flip(image, 1),
    3: lambda image: cv2.rotate(image, cv2.ROTATE_180),
    4: lambda image: cv2.flip(image, 0),
    5: cv2.transpose,
    6: lambda image: cv2.rotate(image, cv2.ROTATE_90_CLOCKWISE),
    7: lambda image: cv2.rotate(cv2.transpose(image), cv2.ROTATE_180),
    8: lambda image: cv2.rotate(image, cv2.ROTATE_90_COUNTERCLOCKWISE),
}
"""By EXIF orientation, what turns an image upright."""


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
    return decode_opened(open_header(data, max_pixels=max_pixels), data, max_pixels=max_pixels)


def decode_opened(header: Image.Image, data: Buffer, *, max_pixels: int) -> BgrImage:
    """:func:`decode_image` for an image whose header is open already."""
    check_pixels(header, max_pixels)
    # before loading, which may add to what is known of the file
    orientation = exif_orientation(header)
    image = None if _is_for_pillow(header, data) else _decode_with_opencv(data)
    if image is None or image.dtype != np.uint8 or image.shape != (header.height, header.width, 3):
        image = _decode_with_pillow(header)
    return _TURN_BACK[orientation](image) if orientation in _TURN_BACK else image


def check_pixels(header: Image.Image, max_pixels: int) -> None:
    """Raise where the header says more than ``max_pixels`` pixels.

    Raises:
        ImageError: ``too_many_pixels``.
    """
    if header.width * header.height > max_pixels:
        raise ImageError(
            row_error("too_many_pixels", f"{header.width} x {header.height} pixels, the limit is {max_pixels}")
        )


@contextlib.contextmanager
def one_image(what: str) -> Iterator[None]:
    """Make any exception of work on one image that image's error: no image stops a shard.

    Args:
        what: what is done with the image, for the error's text.

    Raises:
        ImageError: ``scorer_failed``, with the exception's type and first line; one that was raised inside passes, as
            do this package's other exceptions, which are about no single image.
    """
    try:
        yield
    except InterleavedError:
        raise
    except Exception as error:  # libraries raise what they like on unforeseen images
        reason = str(error).strip().partition("\n")[0]
        raise ImageError(row_error("scorer_failed", f"{what}: {type(error).__name__}: {reason}")) from error


def _is_for_pillow(header: Image.Image, data: Buffer) -> bool:
    """Whether OpenCV 5.0 would give other pixels than the file's, without an error. Found on Pillow's own test images.

    BMP: channel masks behind a header of 52 bytes, and rows of a width that is no multiple of 4, are misread, and
    white of 5 bits becomes 248. GIF: transparent pixels of the first frame become black. PNG with several frames: one
    beside the animation has red and blue exchanged. TIFF: colours stay multiplied by their alpha; Lab is converted
    with another white.
    """
    match header.format:
        case "BMP" | "DIB" | "GIF" | "ICO":
            return True
        case "PNG":
            return b"acTL" in png_chunks(data)
        case "TIFF":
            return header.mode in ("RGBA", "LAB")
    return False


def _decode_with_opencv(data: Buffer) -> BgrImage | None:
    try:
        return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    except Exception:  # noqa: BLE001 - cv2.error, MemoryError, UnicodeDecodeError: Pillow has the last word
        return None


def _decode_with_pillow(image: Image.Image) -> BgrImage:
    if image.mode.startswith(_NO_PICTURE):
        raise ImageError(row_error("undecodable_image", f"samples of mode {image.mode!r} have no defined white"))
    width, height = image.size
    pillow_result(image.load)
    rgb = np.asarray(pillow_result(lambda: image.convert("RGB")))
    if rgb.shape != (height, width, 3):
        raise ImageError(
            row_error(
                "undecodable_image",
                f"the header says {width} x {height} pixels, decoded are {' x '.join(map(str, rgb.shape[1::-1]))}",
            )
        )
    return np.ascontiguousarray(rgb[..., ::-1])
