"""Decoding of image files to pixels, once for all scorers.

OpenCV decodes most images; Pillow decodes those that OpenCV cannot read, and those that OpenCV 5.0 decodes wrongly
without an error (:func:`_is_for_pillow`). Only the first frame is decoded. Apart from those errors, pixels are the same
as in NeMo Curator, which decodes with ``cv2.imdecode(…, IMREAD_COLOR)``:

- the EXIF orientation is applied, also to PNG and WebP, with the function that ``image_size`` uses too;
- transparency is dropped, not blended;
- 16-bit channels are reduced to 8 bits by removing the low byte; CMYK is converted with OpenCV's formula, without a
  colour profile.

Damaged and truncated files raise :class:`~interleaved_assets.model.errors.ImageError`. Damage in formats without a
checksum (flipped bits in the middle of a JPEG) is not detected, as in any decoder.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal

import cv2
import numpy as np
from cv2.typing import MatLike
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile
from PIL.TiffImagePlugin import TiffImageFile

from interleaved_assets.model.errors import ImageError, InterleavedError, row_error
from interleaved_assets.scoring.images.containers import Buffer, bytes_of, png_chunks
from interleaved_assets.scoring.images.jpeg_strips import check_jpeg_strips, strip_without_end
from interleaved_assets.scoring.images.plain_jpeg import plain_jpeg
from interleaved_assets.scoring.images.plain_tiff import plain_tiff, raw_pixels
from interleaved_assets.scoring.images.size import DEFAULT_MAX_PIXELS, exif_orientation, open_header, pillow_result

BgrImage = MatLike
"""Height x width x 3, uint8, the channels blue, green, red: OpenCV's order."""

Reduction = Literal[1, 2, 4, 8]
"""The number of pixels of a JPEG's side that the decoder turns into one."""

_FLAGS: Final[Mapping[int, int]] = {
    1: cv2.IMREAD_COLOR,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}
# 32-bit integer and float samples: they define no white, so they cannot be scaled to 8 bits
_NO_PICTURE: Final = ("I", "F")
_SAMPLE_FORMAT, _SIGNED, _BITS = 339, 2, 258  # tags of TIFF

_TURN_BACK: Final[Mapping[int, Callable[[BgrImage], BgrImage]]] = {
    2: lambda image: cv2.flip(image, 1),
    3: lambda image: cv2.rotate(image, cv2.ROTATE_180),
    4: lambda image: cv2.flip(image, 0),
    5: cv2.transpose,
    6: lambda image: cv2.rotate(image, cv2.ROTATE_90_CLOCKWISE),
    7: lambda image: cv2.rotate(cv2.transpose(image), cv2.ROTATE_180),
    8: lambda image: cv2.rotate(image, cv2.ROTATE_90_COUNTERCLOCKWISE),
}
"""The function that turns an image upright, by EXIF orientation."""


def decode_image(data: Buffer, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> BgrImage:
    """Decode the first frame of an image file.

    Args:
        data: the file's bytes, in one of :data:`~interleaved_assets.scoring.images.size.IMAGE_FORMATS`.
        max_pixels: limit for width x height in the header; a larger image is not decoded.

    Returns:
        Pixels, height x width x 3, uint8, blue-green-red, with the EXIF orientation applied.

    Raises:
        ImageError: ``undecodable_image`` or ``too_many_pixels``.
    """
    image = decode_plain(data, max_pixels=max_pixels)
    return (
        decode_opened(open_header(data, max_pixels=max_pixels), data, max_pixels=max_pixels) if image is None else image
    )


def decode_plain(data: Buffer, *, max_pixels: int) -> BgrImage | None:
    """Return the pixels of an ordinary JPEG or TIFF as :func:`decode_image` does; None if Pillow must open the file."""
    most = min(max_pixels, DEFAULT_MAX_PIXELS)  # Pillow opens a larger one, and has a limit of its own
    if (size := plain_jpeg(data)) is not None:
        is_whole = strip_without_end(data, [0], [len(data)]) is None
        return _decode_of_size(data, *size) if is_whole and math.prod(size) <= most else None
    header = plain_tiff(data)
    if header is None or header.width * header.height > most:
        return None
    if header.strips is not None:
        return raw_pixels(data, header)
    # libtiff takes 1.4 times as long for the same pixels
    offset, length = header.photo or (0, len(data))
    return _decode_of_size(bytes_of(data)[offset : offset + length], header.width, header.height)


def decode_opened(header: Image.Image, data: Buffer, *, max_pixels: int, reduced: Reduction = 1) -> BgrImage:
    """Decode an image whose header is already open, as :func:`decode_image` does.

    The decoder divides a JPEG's width and height by ``reduced``, rounded up, and computes less. An image that OpenCV
    cannot decode is returned in full size.
    """
    check_pixels(header, max_pixels)
    _check_samples(header, data)
    # before loading, which may change the metadata
    orientation = exif_orientation(header)
    image = None if _is_for_pillow(header, data) else _decode_with_opencv(data, reduced)
    if image is None or image.dtype != np.uint8 or image.shape != (*_reduced_size(header, reduced), 3):
        image = _decode_with_pillow(header)
    return _TURN_BACK[orientation](image) if orientation in _TURN_BACK else image


def check_pixels(header: Image.Image, max_pixels: int) -> None:
    """Raise ImageError (``too_many_pixels``) if the header states more than ``max_pixels`` pixels."""
    if header.width * header.height > max_pixels:
        raise ImageError(
            row_error("too_many_pixels", f"{header.width} x {header.height} pixels, the limit is {max_pixels}")
        )


def _check_samples(header: Image.Image, data: Buffer) -> None:
    """Raise ImageError for an image that OpenCV decodes to wrong pixels without an error.

    OpenCV takes signed samples for unsigned ones, leaves black what libtiff cannot unpack, and grey what a JPEG lacks.
    """
    if isinstance(header, JpegImageFile) and strip_without_end(data, [0], [len(data)]) is not None:
        raise ImageError(row_error("undecodable_image", "the JPEG has no end mark: it is cut or damaged"))
    if not isinstance(header, TiffImageFile):
        return
    if _SIGNED in header.tag_v2.get(_SAMPLE_FORMAT, ()):
        raise ImageError(row_error("undecodable_image", "samples with a sign have no defined white"))
    check_jpeg_strips(data)
    if _is_packed(header):
        pillow_result(header.load)


def _is_packed(tiff: TiffImageFile) -> bool:
    """Return whether a TIFF is compressed without loss, so that damage ends its decoder with an error."""
    return tiff.info.get("compression") not in ("raw", "jpeg", "tiff_jpeg")


@contextlib.contextmanager
def one_image(what: str) -> Iterator[None]:
    """Turn exceptions of the operation ``what`` into an error of one image, so that no image stops a shard.

    The error is ImageError ``scorer_failed``, with the type and the first line of the exception. Exceptions of this
    package are not changed.
    """
    try:
        yield
    except InterleavedError:
        raise
    except Exception as error:  # libraries and plugins raise exceptions of any type
        reason = str(error).strip().partition("\n")[0]
        raise ImageError(row_error("scorer_failed", f"{what}: {type(error).__name__}: {reason}")) from error


def _is_for_pillow(header: Image.Image, data: Buffer) -> bool:
    """Return whether OpenCV 5.0 decodes this image wrongly without an error, as found with Pillow's test images.

    BMP: channel masks after a header of 52 bytes, and rows whose width is not a multiple of 4, are misread, and white
    in 5 bits becomes 248. GIF: transparent pixels of the first frame become black. Animated PNG: red and blue of a
    default image outside the animation are exchanged. TIFF: colours stay multiplied by alpha; Lab is converted with
    another white point. Pillow has decoded a compressed TIFF already; its pixels are the same up to 8 bits a sample.
    """
    match header.format:
        case "BMP" | "DIB" | "GIF" | "ICO":
            return True
        case "PNG":
            return b"acTL" in png_chunks(data)
        case "TIFF":
            assert isinstance(header, TiffImageFile)
            is_decoded = _is_packed(header) and max(header.tag_v2.get(_BITS, (1,))) <= 8
            return header.mode in (("RGB", "L", "1", "RGBA", "LAB") if is_decoded else ("RGBA", "LAB"))
    return False


def _reduced_size(header: Image.Image, reduced: Reduction) -> tuple[int, int]:
    return -(-header.height // reduced), -(-header.width // reduced)


def _decode_with_opencv(data: Buffer, reduced: Reduction) -> BgrImage | None:
    try:
        return cv2.imdecode(np.frombuffer(data, np.uint8), _FLAGS[reduced] | cv2.IMREAD_IGNORE_ORIENTATION)
    except Exception:  # noqa: BLE001 - cv2.error, MemoryError, UnicodeDecodeError: Pillow tries next
        return None


def _decode_of_size(data: Buffer, width: int, height: int) -> BgrImage | None:
    image = _decode_with_opencv(data, 1)
    return None if image is None or image.shape != (height, width, 3) else image


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
    return cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR)
