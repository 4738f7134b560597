"""PDF files for tests."""

import io
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from interleaved_assets.demo.pdf_report import jpeg_object, pdf_bytes, shown, stream, text

__all__ = ["flat_image", "image_object", "jpeg", "jpeg_image", "shown", "text", "with_font", "write_pdf"]


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


def image_object(content: bytes, space: str, filters: str, fields: str = "", *, side: int = 64) -> bytes:
    """The object of a square image with 8 bits a component that is stored as ``content``."""
    own = f"/Type /XObject /Subtype /Image /Width {side} /Height {side} /ColorSpace {space} {fields}"
    return stream(f"{own} /BitsPerComponent 8 /Filter {filters}", content)


def with_font(path: Path, pages: Sequence[bytes], meaning: dict[str, str]) -> str:
    """Write a PDF file in whose font each letter of ``meaning`` stands for the text beside it."""
    pairs = "\n".join(f"<{ord(letter):02x}> <{text.encode('utf-16-be').hex()}>" for letter, text in meaning.items())
    cmap = f"1 begincodespacerange <00> <ff> endcodespacerange\n{len(meaning)} beginbfchar\n{pairs}\nendbfchar"
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 6 0 R >>"
    content = pdf_bytes(pages, [("Font", font), ("Cmap", stream("", cmap.encode()))])
    path.write_bytes(content.replace(b"/F1 3 0 R", b"/F1 5 0 R"))
    return str(path)
