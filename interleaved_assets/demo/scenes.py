"""Drawn scenes with captions: shapes of a colour, number, size and place, in front of a backdrop.

A caption describes everything drawn, so that the caption of another scene is wrong. All objects in a caption are in the
central square of the image, which the preprocessing of CLIP keeps.
"""

from dataclasses import dataclass
from typing import Final, Literal

import cv2
import numpy as np

from interleaved_assets.demo.backdrops import LANDSCAPES, PAPERS, Backdrop
from interleaved_assets.demo.shapes import SHAPES, paint_shape

COLOURS: Final = {
    "red": (208, 38, 40),
    "orange": (240, 132, 24),
    "yellow": (250, 212, 40),
    "green": (36, 146, 62),
    "blue": (34, 84, 200),
    "purple": (126, 50, 168),
    "pink": (244, 118, 178),
    "black": (26, 26, 30),
    "white": (246, 246, 242),
}
"""Colour words and their RGB, 0 to 255; each object has a shade of its colour."""

PLACES: Final = {
    "in the middle": (0.0, 0.0),
    "at the top": (0.0, -0.29),
    "at the bottom": (0.0, 0.29),
    "on the left": (-0.29, 0.0),
    "on the right": (0.29, 0.0),
    "in the top left corner": (-0.29, -0.29),
    "in the top right corner": (0.29, -0.29),
    "in the bottom left corner": (-0.29, 0.29),
    "in the bottom right corner": (0.29, 0.29),
}
"""Places of shapes: x, y from the centre of the image in units of its short side, y downwards."""

RELATIONS: Final = {
    "above": (0.0, -1.0),
    "below": (0.0, 1.0),
    "to the left of": (-1.0, 0.0),
    "to the right of": (1.0, 0.0),
}
"""Direction from the second group to the first, as x, y, y downwards."""

NUMBERS: Final = {1: "a", 2: "two", 3: "three", 4: "four"}
SMALLEST_SIDE: Final = 32
_ROWS: Final = ("in the middle", "at the top", "at the bottom")  # places of several shapes side by side
_COLUMNS: Final = ("on the left", "on the right")  # places of several shapes one above the other
_RADII: Final = {"small": (0.075, 0.095), "large": (0.17, 0.2), "": (0.105, 0.125)}  # ranges in units of the short side


@dataclass(frozen=True)
class Group:
    """Equal shapes: ``count`` (1 to 4) of one ``shape`` and ``colour``; ``size`` is ``small``, ``large`` or empty."""

    shape: str
    colour: str
    count: int
    size: Literal["small", "large", ""] = ""

    def __str__(self) -> str:
        kind = " ".join(word for word in (self.size, self.colour, self.shape) if word)
        if self.count == 1:
            return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
        return f"{NUMBERS[self.count]} {kind}{'es' if self.shape == 'cross' else 's'}"


@dataclass(frozen=True)
class Composition:
    """Content of a scene: one group at a place, or two groups and the relation of the first to the second.

    Attributes:
        groups: one or two groups; two differ in shape and in colour.
        place: key of :data:`PLACES` for one group, of :data:`RELATIONS` for two.
        backdrop: the backdrop behind the groups.
    """

    groups: tuple[Group, ...]
    place: str
    backdrop: Backdrop

    @property
    def caption(self) -> str:
        first, *others = self.groups
        place = self.place
        if not others and first.count > 1:
            place = f"{'in a column' if place in _COLUMNS else 'in a row'} {place}"
        words = " ".join([str(first), place, *(str(group) for group in others)])
        return f"{words[0].upper()}{words[1:]}, {self.backdrop.phrase}."


@dataclass(frozen=True)
class Scene:
    """A drawn scene: RGB pixels, uint8 of shape (height, width, 3), and its content as one sentence and as data."""

    image: np.ndarray
    caption: str
    composition: Composition


def draw_scene(rng: np.random.Generator, width: int, height: int, composition: Composition | None = None) -> Scene:
    """Draw ``composition``, by default a random one, at ``width`` by ``height`` pixels.

    All randomness comes from ``rng``: the same state of it gives the same bytes. Sharpness, the variance of the
    Laplacian, is far above 100 from 320 by 240 pixels upwards; :func:`blur` reduces it below 100.

    Raises:
        ValueError: a side is shorter than ``SMALLEST_SIDE`` pixels.
    """
    if min(width, height) < SMALLEST_SIDE:
        raise ValueError(f"a scene of {width}×{height} pixels: each side must have {SMALLEST_SIDE} or more")
    composition = composition or compose(rng)
    side = min(width, height)
    backdrop = np.empty((height, width, 3), np.uint8)
    composition.backdrop.paint(backdrop, rng, height / 2 + side * float(rng.uniform(0.0, 0.14)), side)
    canvas = backdrop.astype(np.float32)
    for group, centres, radius in _layout(rng, composition):
        rgb = _shade(rng, group.colour)
        turn = float(rng.uniform(-0.12, 0.12))
        for x, y in centres:
            paint_shape(canvas, group.shape, rgb, (width / 2 + x * side, height / 2 + y * side), radius * side, turn)
    return Scene(_grain(rng, canvas), composition.caption, composition)


def compose(rng: np.random.Generator) -> Composition:
    """Return a random composition: one group or two, on paper or landscape, each with equal probability."""
    backdrops = LANDSCAPES if rng.integers(2) else PAPERS
    backdrop = backdrops[int(rng.integers(len(backdrops)))]
    colours = [str(name) for name in rng.permutation([name for name in COLOURS if name not in backdrop.avoid])]
    shapes = [str(name) for name in rng.permutation(SHAPES)]
    if rng.integers(2):
        first, second = (Group(shapes[i], colours[i], 1 + int(rng.integers(3))) for i in range(2))
        return Composition((first, second), _pick(rng, tuple(RELATIONS)), backdrop)
    if rng.integers(2):
        size: Literal["small", "large"] = "large" if rng.integers(2) else "small"
        return Composition((Group(shapes[0], colours[0], 1, size),), _pick(rng, tuple(PLACES)), backdrop)
    count = 2 + int(rng.integers(3))
    return Composition((Group(shapes[0], colours[0], count),), _pick(rng, (*_ROWS, *_COLUMNS)), backdrop)


def blur(image: np.ndarray, sigma: float) -> np.ndarray:
    """Return ``image`` out of focus: a Gaussian of ``sigma`` pixels over a uint8 image of any number of channels."""
    return cv2.GaussianBlur(image, (0, 0), sigma)


def _layout(rng: np.random.Generator, composition: Composition) -> list[tuple[Group, list[tuple[float, float]], float]]:
    """Return group, centres of its shapes and their radius, in units of the short side from the image's centre."""
    jitter = rng.uniform(-0.02, 0.02, 2)
    place = composition.place
    if len(composition.groups) == 1:
        (group,) = composition.groups
        radius = float(rng.uniform(*_RADII[group.size]))
        centre = np.array(PLACES[place]) + jitter
        along = np.array((0.0, 1.0) if place in _COLUMNS else (1.0, 0.0))
        return [(group, _line_up(centre, along, group.count, radius), radius)]
    # the two groups are on either side of the middle, each in a row or column along the border between them
    across = np.array(RELATIONS[place])
    placed = []
    for group, sign in zip(composition.groups, (1, -1), strict=True):
        radius = float(rng.uniform(*_RADII[group.size])) * (1.15 if group.count == 1 else 1.0)
        centre = sign * across * float(rng.uniform(0.2, 0.25)) + jitter
        placed.append((group, _line_up(centre, np.abs(across[::-1]), group.count, radius), radius))
    return placed


def _line_up(centre: np.ndarray, along: np.ndarray, count: int, radius: float) -> list[tuple[float, float]]:
    step = min(2.3 * radius, 0.92 / count)
    offsets = (np.arange(count) - (count - 1) / 2) * step
    return [(float(x), float(y)) for x, y in centre + offsets[:, None] * along]


def _shade(rng: np.random.Generator, colour: str) -> tuple[int, int, int]:
    red, green, blue = (min(255, max(0, value + int(rng.integers(-12, 13)))) for value in COLOURS[colour])
    return red, green, blue


def _grain(rng: np.random.Generator, canvas: np.ndarray) -> np.ndarray:
    """Return ``canvas`` with fine grain, so that plain areas also count as sharp."""
    shape = canvas.shape[:2]
    # the sum of two uniform integers per pixel is nearly normally distributed, and the same on any machine
    dice = rng.integers(-6, 7, shape, np.int8) + rng.integers(-6, 7, shape, np.int8)
    return np.clip(np.round(canvas + dice[..., None]), 0, 255).astype(np.uint8)


def _pick(rng: np.random.Generator, names: tuple[str, ...]) -> str:
    return names[int(rng.integers(len(names)))]
