"""Outlines of the shapes of the demo, and their painting: antialiased, shaded, hatched, with a shadow."""

from typing import Final

import cv2
import numpy as np
from PIL import Image, ImageDraw

_SUPERSAMPLING = 4  # mask pixels per image pixel, each way, before the mask is averaged down
_HATCH_PERIOD = 6  # pixels between two hatching lines, measured along a row


def _regular(corners: int, radius: float = 1.0, turn: float = 0.0) -> np.ndarray:
    angles = turn - np.pi / 2 + 2 * np.pi * np.arange(corners) / corners
    return radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _star() -> np.ndarray:
    points = np.empty((10, 2))
    points[0::2] = _regular(5, 1.05)
    points[1::2] = _regular(5, 0.44, np.pi / 5)
    return points + np.array((0, 0.06))


def _heart() -> np.ndarray:
    # the usual parametric heart, x = 16 sin³t, scaled into the unit square with y downwards
    t = 2 * np.pi * np.arange(96) / 96
    x = 16 * np.sin(t) ** 3
    y = 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
    return np.stack([x / 17, -(y + 2.5) / 16], axis=1)


def _cross() -> np.ndarray:
    a = 0.34  # half the width of an arm
    upper = [(-a, -1), (a, -1), (a, -a), (1, -a), (1, a), (a, a)]
    return 0.95 * np.array([*upper, *((-x, -y) for x, y in upper)])


_OUTLINES: Final[dict[str, np.ndarray]] = {
    "circle": _regular(96, 0.92),
    "square": 0.84 * np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]),
    "triangle": _regular(3, 1.12) + np.array((0, 0.22)),
    "star": _star(),
    "ring": _regular(96, 0.95),
    "cross": _cross(),
    "heart": _heart(),
    "diamond": np.array([(0, -1.08), (0.68, 0), (0, 1.08), (-0.68, 0)]),
}
_HOLES: Final = {"ring": _regular(96, 0.52)}

SHAPES: Final = tuple(_OUTLINES)
"""Names of the shapes; the plural adds an s, except for ``cross``."""


def shape_mask(shape: str, radius: float, turn: float) -> np.ndarray:
    """Return the coverage of ``shape`` in a square patch, uint8 of shape (side, side), 255 for pixels wholly inside.

    ``radius`` is half the shape's size in pixels, ``turn`` its rotation in radians, clockwise.
    """
    side = 2 * int(np.ceil(1.2 * radius)) + 2
    image = Image.new("L", (side * _SUPERSAMPLING, side * _SUPERSAMPLING))
    draw = ImageDraw.Draw(image)
    rotation = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    for outline, value in ((_OUTLINES[shape], 255), (_HOLES.get(shape), 0)):
        if outline is not None:
            points = (outline @ rotation * radius + side / 2) * _SUPERSAMPLING
            draw.polygon([(float(x), float(y)) for x, y in points], fill=value)
    return np.asarray(image.reduce(_SUPERSAMPLING))


def paint_shape(
    canvas: np.ndarray, shape: str, rgb: tuple[int, int, int], centre: tuple[float, float], radius: float, turn: float
) -> None:
    """Paint one shape into ``canvas``, float32 RGB of shape (height, width, 3) with values 0 to 255, in place.

    ``centre`` is x, y in pixels. Parts outside the canvas are left out.
    """
    margin = max(2, round(radius * 0.35))  # room for the shadow
    mask = np.pad(shape_mask(shape, radius, turn), margin)
    side = mask.shape[0]
    left, top = round(centre[0] - side / 2), round(centre[1] - side / 2)
    height, width = canvas.shape[:2]
    rows = slice(max(0, -top), min(side, height - top))
    columns = slice(max(0, -left), min(side, width - left))
    if rows.start >= rows.stop or columns.start >= columns.stop:
        return
    region = canvas[top + rows.start : top + rows.stop, left + columns.start : left + columns.stop]

    drop = max(1, round(radius * 0.12))
    shadow = np.roll(cv2.GaussianBlur(mask, (0, 0), max(0.8, radius * 0.09)), (drop, drop), axis=(0, 1))
    region *= 1 - 0.38 / 255 * shadow[rows, columns, None].astype(np.float32)

    rim = max(1, round(radius * 0.05))
    core = cv2.erode(mask, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * rim + 1, 2 * rim + 1)))
    fill = _shading(rgb, mask, core)[rows, columns]
    alpha = mask[rows, columns, None].astype(np.float32) / 255
    region += alpha * (fill - region)


def _shading(rgb: tuple[int, int, int], mask: np.ndarray, core: np.ndarray) -> np.ndarray:
    """Return the colour of each pixel of the patch: lit from the top left, hatched, with a darker rim.

    On black the rim is lighter.
    """
    side = mask.shape[0]
    y, x = np.mgrid[:side, :side].astype(np.float32)
    light = 1.1 - 0.3 * (x + y) / (2 * side)
    hatched = ((x + y) % _HATCH_PERIOD < 2) & ((x + y) > 0.9 * side)  # on the shaded half only
    base = np.array(rgb, np.float32)
    dark = float(base.max()) < 80
    lit = base * light[..., None] + (14 if dark else -14) * hatched[..., None].astype(np.float32)
    inside = core[..., None].astype(np.float32) / 255
    edge = base + 55 if dark else base * 0.55
    return np.clip(edge + inside * (lit - edge), 0, 255)
