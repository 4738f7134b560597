"""Backgrounds of the demo scenes: papers with a pattern, and landscapes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np

Rgb = tuple[int, int, int]
_SHIFT = 4  # OpenCV draws at sixteenths of a pixel; it antialiases on uint8 only


@dataclass(frozen=True)
class Backdrop:
    """A backdrop by its words.

    Attributes:
        phrase: the words of a caption for it, such as ``"on a cream background with stripes"``.
        avoid: colours that would be lost in front of it.
        paint: fills a uint8 RGB canvas, given the generator, the horizon's y and the short side, both in pixels.
    """

    phrase: str
    avoid: frozenset[str]
    paint: Callable[[np.ndarray, np.random.Generator, float, float], None]


def _paper(rgb: Rgb, pattern: str) -> Callable[[np.ndarray, np.random.Generator, float, float], None]:
    def paint(canvas: np.ndarray, rng: np.random.Generator, horizon: float, side: float) -> None:
        del horizon
        _gradient(canvas, tuple(min(255.0, value * 1.04) for value in rgb), tuple(value * 0.93 for value in rgb))
        ink = tuple(value * 0.84 if sum(rgb) > 300 else value + 34 for value in rgb)
        step = side * float(rng.uniform(0.1, 0.13))
        offset = float(rng.uniform(0, step))
        height, width = canvas.shape[:2]
        if pattern == "stripes":
            for x in np.arange(offset - 2 * step - height, width + step, 1.4 * step):
                points = [(x, height), (x + 0.55 * step, height), (x + 0.55 * step + height, 0), (x + height, 0)]
                _polygon(canvas, points, ink)
        elif pattern == "dots":
            for row, y in enumerate(np.arange(offset - step, height + step, step)):
                for x in np.arange(offset - step + (row % 2) * step / 2, width + step, step):
                    _disc(canvas, x, y, 0.19 * step, ink)
        elif pattern == "squares":
            for row, y in enumerate(np.arange(offset - 2 * step, height + step, step)):
                for x in np.arange(offset - 2 * step + (row % 2) * step, width + step, 2 * step):
                    _polygon(canvas, [(x, y), (x + step, y), (x + step, y + step), (x, y + step)], ink)

    return paint


def _meadow(canvas: np.ndarray, rng: np.random.Generator, horizon: float, side: float) -> None:
    _gradient(canvas, (150, 196, 232), (222, 236, 240))
    _clouds(canvas, rng, horizon, side)
    for depth, rgb in enumerate(((150, 182, 128), (122, 166, 92), (98, 148, 66))):
        _ridge(canvas, rng, horizon + depth * 0.11 * side, 0.045 * side, 0.9 * side, rgb)
    for _ in range(_per_area(canvas, side, 700)):
        x, y = _below(canvas, rng, horizon + 0.12 * side)
        length = side * 0.012 * (1 + 2 * (y - horizon) / side)
        green = (70, 118, 44) if rng.integers(2) else (142, 186, 92)
        _line(canvas, (x, y), (x + float(rng.uniform(-0.5, 0.5)) * length, y - length), green)


def _sea(canvas: np.ndarray, rng: np.random.Generator, horizon: float, side: float) -> None:
    _gradient(canvas, (168, 206, 230), (240, 232, 214))
    _clouds(canvas, rng, horizon, side)
    top = max(0, round(horizon))
    _gradient(canvas[top:], (52, 124, 152), (22, 74, 112))
    for _ in range(_per_area(canvas, side, 420)):
        x, y = _below(canvas, rng, horizon + 0.01 * side)
        length = side * (0.012 + 0.09 * (y - horizon) / side) * float(rng.uniform(0.6, 1.4))
        foam = (150, 196, 206) if rng.integers(3) else (18, 64, 98)
        _line(canvas, (x, y), (x + length, y), foam)


def _night(canvas: np.ndarray, rng: np.random.Generator, horizon: float, side: float) -> None:
    _gradient(canvas, (14, 18, 48), (58, 54, 104))
    for _ in range(_per_area(canvas, side, 150)):
        x, y = float(rng.uniform(0, canvas.shape[1])), float(rng.uniform(0, canvas.shape[0]))
        glow = float(rng.uniform(150, 250))
        _disc(canvas, x, y, side * float(rng.uniform(0.0016, 0.0042)), (glow, glow, glow * 0.94))
    _ridge(canvas, rng, horizon + 0.2 * side, 0.06 * side, 0.6 * side, (20, 20, 40))


def _desert(canvas: np.ndarray, rng: np.random.Generator, horizon: float, side: float) -> None:
    _gradient(canvas, (196, 214, 222), (248, 228, 196))
    for depth, rgb in enumerate(((226, 194, 142), (214, 174, 116), (196, 152, 94))):
        _ridge(canvas, rng, horizon + depth * 0.12 * side, 0.055 * side, 1.3 * side, rgb)
    for _ in range(_per_area(canvas, side, 420)):
        x, y = _below(canvas, rng, horizon + 0.08 * side)
        length = side * float(rng.uniform(0.01, 0.035))
        sand = (172, 130, 76) if rng.integers(2) else (236, 206, 156)
        _line(canvas, (x, y), (x + length, y - 0.25 * length), sand)


def _mountains(canvas: np.ndarray, rng: np.random.Generator, horizon: float, side: float) -> None:
    _gradient(canvas, (178, 196, 220), (232, 226, 232))
    height, width = canvas.shape[:2]
    for depth, rgb in enumerate(((146, 158, 182), (98, 112, 142))):
        x = -side * float(rng.uniform(0.1, 0.5))
        base = horizon + (0.14 + 0.12 * depth) * side
        # fill the valleys between the peaks
        foot = base - 0.09 * side
        _polygon(canvas, [(-1, foot), (width + 1, foot), (width + 1, height + 1), (-1, height + 1)], rgb)
        while x < width + 0.2 * side:
            half = side * float(rng.uniform(0.24, 0.38))
            rise = half * float(rng.uniform(0.75, 0.95)) * (1 - 0.3 * depth)
            peak = (x + half, base - rise)
            _polygon(canvas, [(x, base), peak, (x + 2 * half, base)], rgb)
            snow = [peak]
            for share, drop in ((0.3, 0.34), (0.12, 0.26), (0.0, 0.36), (-0.14, 0.25), (-0.3, 0.32)):
                snow.append((peak[0] + share * half, peak[1] + drop * rise))
            _polygon(canvas, snow, (240, 244, 250))
            x += half * float(rng.uniform(1.0, 1.5))
    _gradient(canvas[min(height - 1, max(0, round(horizon + 0.25 * side))) :], (110, 126, 138), (74, 90, 100))
    for _ in range(_per_area(canvas, side, 260)):
        x, y = _below(canvas, rng, horizon + 0.27 * side)
        tall = side * float(rng.uniform(0.02, 0.05))
        _polygon(canvas, [(x, y - tall), (x + 0.3 * tall, y), (x - 0.3 * tall, y)], (44, 66, 68))


_PAPERS: Final[dict[str, tuple[Rgb, frozenset[str]]]] = {
    "cream": ((244, 234, 208), frozenset({"white", "yellow"})),
    "pale blue": ((190, 214, 236), frozenset({"white", "blue"})),
    "pale green": ((200, 226, 194), frozenset({"white", "green"})),
    "pale pink": ((244, 208, 212), frozenset({"white", "pink"})),
    "grey": ((158, 160, 164), frozenset({"white"})),
    "dark blue": ((34, 46, 84), frozenset({"black", "blue", "purple"})),
}
_PATTERNS: Final = {"": "", "stripes": " with stripes", "dots": " with dots", "squares": " with squares"}

PAPERS: Final = tuple(
    Backdrop(f"on a {colour} background{words}", avoid, _paper(rgb, pattern))
    for colour, (rgb, avoid) in _PAPERS.items()
    for pattern, words in _PATTERNS.items()
)
"""Every paper colour with every pattern."""

LANDSCAPES: Final = (
    Backdrop("over a green meadow", frozenset({"green", "white"}), _meadow),
    Backdrop("over the blue sea", frozenset({"blue", "white"}), _sea),
    Backdrop("in the night sky", frozenset({"black", "blue", "purple"}), _night),
    Backdrop("over desert dunes", frozenset({"white", "yellow", "orange"}), _desert),
    Backdrop("over snowy mountains", frozenset({"white"}), _mountains),
)
"""The landscapes, each with its horizon."""


def _gradient(canvas: np.ndarray, top: tuple[float, ...], bottom: tuple[float, ...]) -> None:
    share = np.linspace(0, 1, len(canvas), dtype=np.float32)[:, None, None]
    canvas[:] = np.round((1 - share) * np.array(top, np.float32) + share * np.array(bottom, np.float32))


def _ridge(canvas: np.ndarray, rng: np.random.Generator, y: float, rise: float, wave: float, rgb: Rgb) -> None:
    """Fill the area below a wavy line at about ``y``; ``rise`` is its amplitude and ``wave`` its length in pixels."""
    height, width = canvas.shape[:2]
    x = np.linspace(-1, width + 1, 160)
    first, second = rng.uniform(0, 2 * np.pi, 2)
    line = y + rise * (0.7 * np.sin(2 * np.pi * x / wave + first) + 0.3 * np.sin(5.3 * np.pi * x / wave + second))
    _polygon(canvas, [*zip(x, line, strict=True), (width + 1, height + 1), (-1, height + 1)], rgb)


def _clouds(canvas: np.ndarray, rng: np.random.Generator, horizon: float, side: float) -> None:
    layer = np.zeros(canvas.shape[:2], np.uint8)
    for _ in range(3 + canvas.shape[1] // round(side)):
        x, y = float(rng.uniform(0, canvas.shape[1])), horizon - side * float(rng.uniform(0.2, 0.65))
        for puff in range(5):
            size = side * float(rng.uniform(0.02, 0.042))
            _disc(layer, x + (puff - 2) * 0.045 * side, y + 0.2 * size * (puff % 2), size, (150,))
    soft = cv2.GaussianBlur(layer, (0, 0), max(0.8, 0.012 * side)).astype(np.float32)[..., None] / 255
    canvas[:] = np.round(canvas + soft * (250 - canvas.astype(np.float32)))


def _below(canvas: np.ndarray, rng: np.random.Generator, y: float) -> tuple[float, float]:
    height, width = canvas.shape[:2]
    return float(rng.uniform(0, width)), float(rng.uniform(min(y, height - 1), height))


def _per_area(canvas: np.ndarray, side: float, number: int) -> int:
    """Return ``number`` per square of the short side, scaled to the area of the canvas."""
    return round(number * canvas.shape[0] * canvas.shape[1] / side**2)


def _fixed(points: list[tuple[float, float]]) -> np.ndarray:
    return np.round(np.array(points) * 2**_SHIFT).astype(np.int32)


def _polygon(canvas: np.ndarray, points: list[tuple[float, float]], rgb: tuple[float, ...]) -> None:
    cv2.fillPoly(canvas, [_fixed(points)], rgb, cv2.LINE_AA, _SHIFT)


def _disc(canvas: np.ndarray, x: float, y: float, radius: float, rgb: tuple[float, ...]) -> None:
    centre, size = (round(x * 2**_SHIFT), round(y * 2**_SHIFT)), max(1, round(radius * 2**_SHIFT))
    cv2.circle(canvas, centre, size, rgb, -1, cv2.LINE_AA, _SHIFT)


def _line(canvas: np.ndarray, start: tuple[float, float], end: tuple[float, float], rgb: tuple[float, ...]) -> None:
    first, last = ((round(x * 2**_SHIFT), round(y * 2**_SHIFT)) for x, y in (start, end))
    cv2.line(canvas, first, last, rgb, 1, cv2.LINE_AA, _SHIFT)
