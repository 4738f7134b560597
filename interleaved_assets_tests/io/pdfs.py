"""PDF files for tests."""

import io
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from interleaved_assets.demo.pdf_report import jpeg_object, pdf_bytes, shown, stream, text

__all__ = ["flat_image", "jpeg", "jpeg_image", "shown", "text", "write_pdf"]


def jpeg(seed: int, *, side: int = 64) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8)
    Image.fromarray(pixels).save(buffer, "JPEG")
    return buffer.getvalue()


def jpeg_image(content: bytes, *, mask: int | None = None) -> bytes:
    """The object of an image that is a JPEG; ``mask`` is the number of the object with its mask."""
    return jpeg_object(content, *Image.open(io.BytesIO(content)).size, f"/SMask {mask} 0 R" if mask else "")


def flat_image(pixels: np.ndarray) -> bytes:
    """The object of an image of shape (height, width) or (height, width, 3), uint8, packed with zlib."""
    height, width = pixels.shape[:2]
    space = "/DeviceRGB" if pixels.ndim == 3 else "/DeviceGray"
    fields = f"/Type /XObject /Subtype /Image /Width {width} /Height {height} /ColorSpace {space}"
    return stream(f"{fields} /BitsPerComponent 8 /Filter /FlateDecode", zlib.compress(pixels.tobytes()))


def write_pdf(path: Path, pages: Sequence[bytes], objects: Sequence[tuple[str, bytes]] = (), *, title: str = "") -> str:
    path.write_bytes(pdf_bytes(pages, objects, title=title))
    return str(path)
