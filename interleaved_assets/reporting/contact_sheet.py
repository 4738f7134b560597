"""A contact sheet: thumbnails of a shard's images in rows, each with its scores and its drop reason."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from interleaved_assets.model.errors import ImageError
from interleaved_assets.reporting.chart import DROPPED, INK, KEPT, MUTED, SURFACE
from interleaved_assets.scoring.decode import decode_image

MAX_TILES: Final = 24
MAX_BYTES: Final = 150_000
COLUMNS: Final = 6
THUMBNAIL: Final = 120  # pixels, the longer side

_GAP, _MARGIN, _LINE = 14, 14, 14
_BACKDROP: Final = "#f1f3f6"
_QUALITIES: Final = (86, 76, 64, 50, 36)


@dataclass(frozen=True)
class Tile:
    """One picture of the sheet.

    Attributes:
        data: bytes of the image file (its first frame is shown); None where they could not be fetched.
        lines: caption, one string a line; a line that is too long is cut and ends with an ellipsis.
        dropped: whether the picture was dropped; the edge of its tile has another colour then.
        error: row error such as ``undecodable_image: …``, shown where there is no picture.
    """

    data: bytes | None
    lines: tuple[str, ...] = ()
    dropped: bool = False
    error: str | None = None


def contact_sheet(tiles: Sequence[Tile], *, max_tiles: int = MAX_TILES, max_bytes: int = MAX_BYTES) -> bytes:
    """The first ``max_tiles`` of ``tiles`` as one JPEG of at most ``max_bytes`` bytes.

    A picture that cannot be decoded gets a tile with its error code instead. Where the JPEG is too large, its quality
    is lowered, and then the number of tiles.

    Raises:
        ValueError: there are no tiles, or ``max_bytes`` is too small for a sheet of one.
    """
    if not tiles:
        raise ValueError("a contact sheet needs at least one tile")
    shown = list(tiles[:max_tiles])
    while shown:
        sheet = _draw(shown)
        for quality in _QUALITIES:
            buffer = io.BytesIO()
            sheet.save(buffer, "JPEG", quality=quality, optimize=True)
            if buffer.tell() <= max_bytes:
                return buffer.getvalue()
        # remove one row at a time, from the last row one tile at a time
        full_rows = (len(shown) - 1) // COLUMNS * COLUMNS
        shown = shown[: full_rows or len(shown) - 1]
    raise ValueError(f"no contact sheet fits into {max_bytes} bytes")


def _draw(tiles: Sequence[Tile]) -> Image.Image:
    columns = min(COLUMNS, len(tiles))
    rows = math.ceil(len(tiles) / columns)
    text_lines = max(len(tile.lines) for tile in tiles)
    cell_width, cell_height = THUMBNAIL + _GAP, THUMBNAIL + _GAP + 4 + _LINE * text_lines
    size = (2 * _MARGIN + columns * cell_width - _GAP, 2 * _MARGIN + rows * cell_height - _GAP)
    sheet = Image.new("RGB", size, SURFACE)
    draw = ImageDraw.Draw(sheet)
    for number, tile in enumerate(tiles):
        left, top = _MARGIN + number % columns * cell_width, _MARGIN + number // columns * cell_height
        draw.rectangle((left, top, left + THUMBNAIL - 1, top + THUMBNAIL - 1), fill=_BACKDROP)
        picture = tile.error or "missing_source" if tile.data is None else _thumbnail(tile.data)
        if isinstance(picture, str):
            _draw_placeholder(draw, (left, top), picture)
        else:
            sheet.paste(picture, (left + (THUMBNAIL - picture.width) // 2, top + (THUMBNAIL - picture.height) // 2))
        edge = DROPPED if tile.dropped else KEPT
        draw.rectangle((left, top + THUMBNAIL, left + THUMBNAIL - 1, top + THUMBNAIL + 2), fill=edge)
        for line_number, line in enumerate(tile.lines):
            place = (left, top + THUMBNAIL + 6 + line_number * _LINE)
            draw.text(place, _shortened(line, _font(10)), fill=MUTED if line_number else INK, font=_font(10))
    return sheet


def _thumbnail(data: bytes) -> Image.Image | str:
    """The picture as the scorers see it, at thumbnail size; the row error where it cannot be decoded."""
    try:
        pixels = decode_image(data)
    except ImageError as error:
        return str(error)
    picture = Image.fromarray(np.ascontiguousarray(pixels[..., ::-1]))
    # reducing_gap shrinks by whole factors first, which is many times faster on large pictures
    picture.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS, reducing_gap=3.0)
    return picture


def _draw_placeholder(draw: ImageDraw.ImageDraw, corner: tuple[int, int], error: str) -> None:
    """An empty tile with a cross and the error's code, broken at its underscores."""
    left, top = corner
    box = (left + 46, top + 30, left + 74, top + 58)
    draw.line((box[0], box[1], box[2], box[3]), fill=DROPPED, width=3)
    draw.line((box[0], box[3], box[2], box[1]), fill=DROPPED, width=3)
    code = error.partition(":")[0]
    draw.multiline_text(
        (left + THUMBNAIL / 2, top + 70),
        code.replace("_", "_\n") if _font(10).getlength(code) > THUMBNAIL - 8 else code,
        fill=INK,
        font=_font(10),
        anchor="ma",
        align="center",
    )


def _shortened(line: str, font: ImageFont.FreeTypeFont) -> str:
    if font.getlength(line) <= THUMBNAIL:
        return line
    while line and font.getlength(line + "…") > THUMBNAIL:
        line = line[:-1]
    return line + "…"


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    """DejaVu Sans as shipped with matplotlib: the same on every machine, with characters such as ≥."""
    return ImageFont.truetype(str(Path(mpl.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), size)
