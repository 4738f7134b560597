"""Drawn images and their encodings for the tests of scoring and selection, with a fixed seed."""

from io import BytesIO

import cv2
import numpy as np
import pyarrow as pa
import zxingcpp
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]


def noise(height: int = 40, width: int = 60, seed: int = 0, blur: float = 0.0) -> Pixels:
    """Random colours, height x width x 3, smoothed by a Gaussian of ``blur`` pixels."""
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return cv2.GaussianBlur(image, (0, 0), blur) if blur else image


def even(height: int, width: int, value: int = 128) -> Pixels:
    """One grey everywhere."""
    return np.full((height, width, 3), value, dtype=np.uint8)


def qr_code(module: int, text: str = "interleaved") -> Pixels:
    """A QR code of version 1 (21 x 21 modules) without a quiet zone, ``module`` pixels a module."""
    code = zxingcpp.create_barcode(text, zxingcpp.BarcodeFormat.QRCode, ec_level="L")
    grey = np.array(code.to_image(scale=module, add_quiet_zones=False))
    return cv2.cvtColor(grey, cv2.COLOR_GRAY2BGR)


def page_with(code: Pixels, height: int, width: int, top: int, left: int) -> Pixels:
    """A white page with ``code`` on it."""
    page = even(height, width, 255)
    page[top : top + code.shape[0], left : left + code.shape[1]] = code
    return page


def encode(image: Pixels, kind: str = "PNG", *, mode: str = "RGB", **options: object) -> bytes:
    """A file of Pillow's format ``kind`` holding the blue-green-red ``image``."""
    buffer = BytesIO()
    Image.fromarray(image[..., ::-1]).convert(mode).save(buffer, kind, **options)
    return buffer.getvalue()


def with_orientation(image: Pixels, kind: str, orientation: int) -> bytes:
    """A file whose EXIF (or TIFF) tag says how ``image`` is to be turned."""
    if kind == "TIFF":
        return encode(image, kind, tiffinfo={0x0112: orientation})
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encode(image, kind, exif=exif)


def image_rows(contents: list[bytes | None], errors: list[str | None] | None = None) -> pa.Table:
    """One image row for each content, in samples of two."""
    count = len(contents)
    return pa.table(
        {
            "sample_id": [f"doc{number // 2}" for number in range(count)],
            "position": pa.array([number % 2 for number in range(count)], pa.int32()),
            "modality": ["image"] * count,
            "binary_content": pa.array(contents, pa.large_binary()),
            "materialize_error": pa.array(errors or [None] * count, pa.string()),
        }
    )
