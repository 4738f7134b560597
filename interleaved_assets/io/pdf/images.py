"""Images of a page: as they are stored where that shows what the page shows, else as PNG."""

import io
import mmap
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import pypdfium2 as pdfium
import pypdfium2.raw as raw
from PIL import Image, ImageChops, ImageStat

MOST_IMAGE_PIXELS: Final = 100_000_000
_OPAQUE: Final = 255
_PLAIN_SPACES: Final = frozenset(
    {
        raw.FPDF_COLORSPACE_DEVICEGRAY,
        raw.FPDF_COLORSPACE_DEVICERGB,
        raw.FPDF_COLORSPACE_CALGRAY,
        raw.FPDF_COLORSPACE_CALRGB,
        raw.FPDF_COLORSPACE_ICCBASED,
    }
)
_STORED: Final = {"DCTDecode": ("JPEG", "image/jpeg"), "JPXDecode": ("JPEG2000", "image/jp2")}
_JP2_HEAD: Final = b"\0\0\0\x0cjP  \r\n\x87\n"
_EFFORT: Final = 3
"""Effort of packing a PNG, of 9: half the time of 6, and within 3 % of its size on pictures that fill a page."""
_SAMPLE: Final = (32, 32)
_SAME: Final = 12
"""Mean difference, of 255, up to which two small pictures are the same one."""
_SAME_INKS: Final = 64
"""The same for CMYK, whose inks are shown as colours in more than one way."""
_ADDRESS: Final = re.compile(r" <\w+ 0x\w+>")
"""The name that pypdfium2 gives an object; it differs from run to run."""
_OWN_COLOURS: Final = re.compile(rb"/Decode\s*\[|/ColorTransform")


class Marks(NamedTuple):
    """Keys that the dictionaries of a file's images may have. They are never compressed, so none is overlooked."""

    masks: bool = True
    own_colours: bool = True

    @classmethod
    def of(cls, path: str) -> "Marks":
        with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            masks = content.find(b"/SMask") >= 0 or content.find(b"/Mask") >= 0
            return cls(masks, _OWN_COLOURS.search(content) is not None)


def image_block(item: Any, contents: list[bytes], marks: Marks) -> dict[str, Any]:
    """Append the bytes of an image and return its block.

    A complete JPEG or JPEG 2000 file is copied if it has no mask and any decoder shows the colours that the page shows.
    """
    width, height = item.get_px_size()
    if width * height > MOST_IMAGE_PIXELS:
        return {"image": None, "error": f"image_too_large: {width} × {height} pixels in a PDF file"}
    try:
        has_mask = marks.masks and _is_transparent(item)
        stored = None if has_mask else _stored(item, marks)
        if stored is not None:
            contents.append(stored[0])
            return {"image": len(contents) - 1, "type": stored[1]}
        return png_block(item.get_bitmap(render=has_mask), contents)
    except (pdfium.PdfiumError, ValueError, OSError, MemoryError) as error:
        reason = _ADDRESS.sub("", str(error))
        return {"image": None, "error": f"undecodable_image: {type(error).__name__}: {reason}"}


def png_block(bitmap: Any, contents: list[bytes]) -> dict[str, Any]:
    """Append a bitmap as PNG and return its block."""
    buffer = io.BytesIO()
    bitmap.to_pil().save(buffer, "PNG", compress_level=_EFFORT)
    contents.append(buffer.getvalue())
    return {"image": len(contents) - 1, "type": "image/png"}


def _is_transparent(item: Any) -> bool:
    """Return whether a mask hides parts of an image, by the middle of a small picture of it: edges are always soft."""
    alpha = item.get_bitmap(render=True, scale_to_original=False).to_pil().convert("RGBA").getchannel("A")
    width, height = alpha.size
    inside = alpha.crop((width // 10, height // 10, max(width - width // 10, 1), max(height - height // 10, 1)))
    return bool(inside.getextrema()[0] < _OPAQUE)


def _stored(item: Any, marks: Marks) -> tuple[bytes, str] | None:
    """Return the file that an image is stored as, with its type, None if another is needed to show its colours."""
    filters = item.get_filters(skip_simple=True)
    if len(filters) != 1 or filters[0] not in _STORED:
        return None
    form, mime = _STORED[filters[0]]
    content = bytes(item.get_data(decode_simple=True))
    if form == "JPEG2000" and not content.startswith(_JP2_HEAD):
        return None
    try:
        with Image.open(io.BytesIO(content), formats=[form]) as image:
            is_jpeg = form == "JPEG"
            is_plain = image.mode in ("L", "RGB") and not (
                is_jpeg and item.get_metadata().colorspace not in _PLAIN_SPACES
            )
            if not is_plain and image.mode != "CMYK":
                return None
            is_sure = is_jpeg and is_plain and not marks.own_colours
            if not is_sure and not _looks_the_same(item, image, is_plain=is_plain):
                return None
    except (OSError, Image.DecompressionBombError):
        return None  # damaged: PDFium may show more of it
    return content, mime


def _looks_the_same(item: Any, image: Image.Image, *, is_plain: bool) -> bool:
    """Return whether the stored image, as decoders show it, is what PDFium shows."""
    shown = item.get_bitmap(render=False).to_pil().convert("RGB").resize(_SAMPLE, Image.Resampling.BOX)
    image.draft(image.mode, (4 * _SAMPLE[0], 4 * _SAMPLE[1]))
    stored = image.convert("RGB").resize(_SAMPLE, Image.Resampling.BOX)
    apart = _difference(shown, stored)
    if is_plain:
        return apart <= _SAME
    return apart <= min(_SAME_INKS, _difference(shown, ImageChops.invert(stored)))


def _difference(one: Image.Image, other: Image.Image) -> float:
    return float(sum(ImageStat.Stat(ImageChops.difference(one, other)).mean) / 3)
