"""The process that parses one PDF file with PDFium, under limits of memory and time.

It is started as ``python -m interleaved_assets.io.pdf.child`` with the path and the settings as JSON arguments. It
writes frames to its standard output: a line of JSON with the sizes of the byte strings that follow, then those bytes.
A damaged file can end it, and only it.
"""

import io
import json
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pypdfium2 as pdfium
import pypdfium2.raw as raw

from interleaved_assets.io.pdf.layout import Box, Line, paragraphs, places

_MOST_FORMS: Final = 5
"""Levels of form objects in which images are looked for."""
_MOST_IMAGE_PIXELS: Final = 100_000_000
_POINTS: Final = 72
_OPAQUE: Final = 255
_WRAPPED: Final = "\ufffe\x02"
Frame = tuple[dict[str, Any], list[bytes]]


def main() -> None:
    """Parse the file that the arguments name, and write a frame for it and one for each page."""
    path, options = sys.argv[1], json.loads(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (options["max_memory"],) * 2)
    out = sys.stdout.buffer
    for head, contents in _frames(path, options):
        head["sizes"] = [len(content) for content in contents]
        out.write(json.dumps(head).encode() + b"\n")
        for content in contents:
            out.write(content)
        out.flush()


def _frames(path: str, options: dict[str, Any]) -> Iterator[Frame]:
    try:
        document = pdfium.PdfDocument(path)
    except pdfium.PdfiumError as error:
        yield {"refused": str(error)}, []
        return
    # an image is an object with its dictionary in plain text, so that no mask can be overlooked
    content = Path(path).read_bytes()
    options["masks"] = b"/SMask" in content or b"/Mask" in content
    del content
    about = {name.lower(): value for name, value in document.get_metadata_dict(skip_empty=True).items()}
    yield {"pages": len(document), "about": about}, []
    for number in range(min(len(document), options["max_pages"])):
        try:
            yield _page(document[number], number + 1, options)
        except (pdfium.PdfiumError, MemoryError, ValueError, OSError) as error:
            yield {"page": number + 1, "blocks": [], "error": f"{type(error).__name__}: {error}"}, []


def _page(page: Any, number: int, options: dict[str, Any]) -> Frame:
    lines = _lines(page.get_textpage())
    found = paragraphs(lines)
    images = [
        (item, Box(*item.get_bounds()))
        for item in page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=_MOST_FORMS)
        if min(item.get_px_size()) >= options["min_image_side"]
    ]
    blocks: list[dict[str, Any]] = []
    contents: list[bytes] = []
    before = places(found, [box for _, box in images])
    for at in range(len(found) + 1):
        for (item, _), place in zip(images, before, strict=True):
            if place == at:
                blocks.append(_image(item, contents, may_have_mask=options["masks"]))
        if at < len(found):
            blocks.append({"text": found[at].text})
    has_text = any(paragraph.text.strip() for paragraph in found)
    if not has_text and options["page_images"]:
        blocks.append(_rendered(page, contents, options["page_dpi"]))
    return {"page": number, "blocks": blocks, "has_text": has_text}, contents


def _lines(text: Any) -> list[Line]:
    """Return the lines of a page in PDFium's order, which is that of the file with lines put together.

    PDFium writes U+FFFE, or U+0002, for a hyphen at the end of a line, and no line end after it.
    """
    lines: list[Line] = []
    content, box = "", None
    for at, character in enumerate(text.get_text_range()):
        if character in "\r\n":
            _end(lines, content, box)
            content, box = "", None
        elif character in _WRAPPED:
            _end(lines, f"{content}-", box)
            content, box = "", None
        else:
            content += character
            if not character.isspace() and at < text.count_chars():
                own = Box(*text.get_charbox(at, loose=True))
                box = own if box is None else box.with_(own)
    _end(lines, content, box)
    return lines


def _end(lines: list[Line], content: str, box: Box | None) -> None:
    if box is not None and (cleaned := " ".join(content.split())):
        lines.append(Line(cleaned, box))


def _image(item: Any, contents: list[bytes], *, may_have_mask: bool) -> dict[str, Any]:
    """Append the bytes of an image and return its block: a JPEG without mask as it is stored, any other as PNG."""
    width, height = item.get_px_size()
    if width * height > _MOST_IMAGE_PIXELS:
        return {"image": None, "error": f"image_too_large: {width} × {height} pixels in a PDF file"}
    try:
        has_mask = may_have_mask and _is_transparent(item)
        if item.get_filters() == ["DCTDecode"] and not has_mask:
            contents.append(bytes(item.get_data(decode_simple=False)))
            return {"image": len(contents) - 1, "type": "image/jpeg"}
        return _png(item.get_bitmap(render=has_mask), contents)
    except (pdfium.PdfiumError, ValueError, OSError, MemoryError) as error:
        return {"image": None, "error": f"undecodable_image: {type(error).__name__}: {error}"}


def _is_transparent(item: Any) -> bool:
    """Return whether a mask hides parts of an image, by the middle of a small picture of it: edges are always soft."""
    alpha = item.get_bitmap(render=True, scale_to_original=False).to_pil().convert("RGBA").getchannel("A")
    width, height = alpha.size
    inside = alpha.crop((width // 10, height // 10, max(width - width // 10, 1), max(height - height // 10, 1)))
    return bool(inside.getextrema()[0] < _OPAQUE)


def _rendered(page: Any, contents: list[bytes], dpi: int) -> dict[str, Any]:
    """Append an image of the whole page and return its block."""
    scale = dpi / _POINTS
    width, height = page.get_size()
    if width * height * scale**2 > _MOST_IMAGE_PIXELS:
        return {"image": None, "error": f"image_too_large: a page of {width:.0f} × {height:.0f} points at {dpi} dpi"}
    return _png(page.render(scale=scale), contents)


def _png(bitmap: Any, contents: list[bytes]) -> dict[str, Any]:
    buffer = io.BytesIO()
    bitmap.to_pil().save(buffer, "PNG")
    contents.append(buffer.getvalue())
    return {"image": len(contents) - 1, "type": "image/png"}


if __name__ == "__main__":
    main()
