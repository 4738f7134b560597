"""Drawn pages with and without QR codes, seeded, for ``benchmarks/qr.py``: where the codes are is known exactly."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import cv2
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import zxingcpp
from numpy.typing import NDArray

from benchmarks.dataset import canvas

Image = NDArray[np.uint8]
Corners = NDArray[np.float32]

WIDTH, HEIGHT = 1000, 800
SHARES = (0.01, 0.02, 0.05, 0.10, 0.20, 0.40)
"""Area of a code ÷ area of the page."""
_QUIET_ZONE = 4  # modules, as ISO/IEC 18004 asks
_INK_FONTS = (cv2.FONT_HERSHEY_SIMPLEX, cv2.FONT_HERSHEY_COMPLEX, cv2.FONT_HERSHEY_DUPLEX)


class Page(NamedTuple):
    """An image of 1000 x 800 and the corners of the codes in it, four for each, without the quiet zone."""

    image: Image
    codes: list[Corners]


def text_page(rng: np.random.Generator) -> Image:
    """A white page full of letters."""
    page = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
    font, size = _INK_FONTS[rng.integers(len(_INK_FONTS))], rng.uniform(0.4, 0.9)
    for base in range(30, HEIGHT, int(38 * size) + 4):
        letters = "".join(chr(rng.integers(33, 127)) if rng.random() > 0.15 else " " for _ in range(90))
        cv2.putText(page, letters, (20, base), font, size, (30, 30, 30), 1, cv2.LINE_AA)
    return page


def photograph(rng: np.random.Generator, *, drawn: list[Image]) -> Image:
    """A window of one of some drawn pictures that have the spectrum of photographs (see ``benchmarks/dataset.py``)."""
    picture = drawn[rng.integers(len(drawn))]
    top, left = rng.integers(0, picture.shape[0] - HEIGHT), rng.integers(0, picture.shape[1] - WIDTH)
    return picture[top : top + HEIGHT, left : left + WIDTH].copy()


def draw_photographs(rng: np.random.Generator, count: int = 4) -> list[Image]:
    """The pictures that :func:`photograph` takes windows of."""
    return [canvas(rng) for _ in range(count)]


def code_modules(rng: np.random.Generator, damaged: bool = False) -> Image:
    """A QR code with its quiet zone, one pixel a module, grey: version 1 to about 10, every level of correction."""
    text = "".join(chr(rng.integers(33, 127)) for _ in range(rng.integers(8, 150)))
    level = "LMQH"[rng.integers(4)]
    code = zxingcpp.create_barcode(text, zxingcpp.BarcodeFormat.QRCode, ec_level=level)
    modules = np.pad(np.array(code.to_image(scale=1, add_quiet_zones=False)), _QUIET_ZONE, constant_values=255)
    if damaged:
        # a logo over the middle, larger than error correction can make up for
        side = modules.shape[0]
        modules[side * 3 // 10 : side * 7 // 10, side * 3 // 10 : side * 7 // 10] = 255
    return modules


def place(page: Image, modules: Image, corners: Corners, inverted: bool = False) -> None:
    """Draw a code onto the page so that its outer corners, without the quiet zone, are ``corners``."""
    side = modules.shape[0]
    scale = 16
    large = cv2.resize(modules, None, fx=scale, fy=scale, interpolation=cv2.INTER_NEAREST)
    inner = np.array([[4, 4], [side - 4, 4], [side - 4, side - 4], [4, side - 4]], np.float32) * scale
    warp = cv2.getPerspectiveTransform(inner, corners)
    if inverted:
        large = 255 - large
    # pixels are averages of what they cover: draw at four times the size, then shrink
    fine = np.diag([4.0, 4.0, 1.0]) @ warp
    size = (WIDTH * 4, HEIGHT * 4)
    drawn = cv2.resize(cv2.warpPerspective(large, fine, size), (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)
    covered = cv2.resize(
        cv2.warpPerspective(np.full_like(large, 255), fine, size), (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA
    )
    where = covered > 127
    page[where] = drawn[where][:, None]


def square(rng: np.random.Generator, share: float, angle: float = 0.0, bend: float = 0.0) -> Corners:
    """Corners of a code of that share of the page, turned by ``angle`` degrees, at random where it fits.

    ``bend`` moves each corner by up to that share of the side, as a slanted view does.
    """
    side = (share * WIDTH * HEIGHT) ** 0.5
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * side / 2
    corners += rng.uniform(-bend, bend, (4, 2)) * side
    turn = np.deg2rad(angle)
    corners = corners @ np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    reach = np.abs(corners).max(axis=0) + side * 0.15
    room = np.array([WIDTH, HEIGHT]) / 2 - reach
    centre = np.array([WIDTH, HEIGHT]) / 2 + rng.uniform(-1, 1, 2) * np.maximum(room, 0)
    return (corners + centre).astype(np.float32)


def one_code(
    rng: np.random.Generator,
    share: float,
    background: Image,
    *,
    angle: float = 0.0,
    bend: float = 0.0,
    inverted: bool = False,
    damaged: bool = False,
) -> Page:
    """``background`` with one code on it."""
    corners = square(rng, share, angle, bend)
    place(background, code_modules(rng, damaged), corners, inverted)
    return Page(background, [corners])


def several_codes(rng: np.random.Generator, share: float) -> Page:
    """A text page with four codes, one in each quarter, that together have ``share`` of the page."""
    page, codes = text_page(rng), []
    side = min((share / 4 * WIDTH * HEIGHT) ** 0.5, HEIGHT / 2 * 0.75)
    for quarter in range(4):
        middle = np.array([WIDTH * (1 + 2 * (quarter % 2)) / 4, HEIGHT * (1 + 2 * (quarter // 2)) / 4])
        corners = (middle + np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * side / 2).astype(np.float32)
        place(page, code_modules(rng), corners)
        codes.append(corners)
    return Page(page, codes)


def blurred(page: Page, sigma: float) -> Page:
    """The page out of focus."""
    return page._replace(image=cv2.GaussianBlur(page.image, (0, 0), sigma))


def compressed(page: Page, quality: int) -> Page:
    """The page through a JPEG."""
    encoded = cv2.imencode(".jpg", page.image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    return page._replace(image=cv2.imdecode(encoded, cv2.IMREAD_COLOR))


Draw = Callable[[np.random.Generator, float], Page]


def variants(photographs: list[Image]) -> dict[str, Draw]:
    """Ways of showing codes, by name; each draws a page with codes of a given share."""
    return {
        "on a text page": lambda rng, share: one_code(rng, share, text_page(rng)),
        "turned by any angle": lambda rng, share: one_code(rng, share, text_page(rng), angle=rng.uniform(0, 360)),
        "seen at a slant": lambda rng, share: one_code(rng, share, text_page(rng), bend=0.08),
        "inverted": lambda rng, share: one_code(rng, share, text_page(rng), inverted=True),
        "on a photograph": lambda rng, share: one_code(rng, share, photograph(rng, drawn=photographs)),
        "four at once": several_codes,
        "JPEG of quality 30": lambda rng, share: compressed(one_code(rng, share, text_page(rng)), 30),
        "out of focus (sigma 2)": lambda rng, share: blurred(one_code(rng, share, text_page(rng)), 2.0),
        "with a hole, unreadable": lambda rng, share: one_code(rng, share, text_page(rng), damaged=True),
    }


def without_codes(rng: np.random.Generator, photographs: list[Image], count: int) -> Iterator[tuple[str, Image]]:
    """Images without QR codes, by kind, ``count`` of each; some look like codes."""
    other_codes = ("DataMatrix", "Aztec", "PDF417", "Code128", "EAN13")
    for number in range(count):
        yield "drawn photographs", photograph(rng, drawn=photographs)
        yield "text pages", text_page(rng)
        yield "plots", _plot(rng)
        kind = other_codes[number % len(other_codes)]
        yield "other bar codes", _other_code(rng, kind)
        module = int(rng.integers(3, 13))
        blocks = rng.integers(0, 2, (HEIGHT // module + 1, WIDTH // module + 1), dtype=np.uint8) * 255
        grey = np.kron(blocks, np.ones((module, module), np.uint8))[:HEIGHT, :WIDTH]
        yield "random black squares", cv2.cvtColor(grey, cv2.COLOR_GRAY2BGR)


def _plot(rng: np.random.Generator) -> Image:
    matplotlib.use("Agg")
    figure, axes = plt.subplots(figsize=(10, 8), dpi=100)
    if rng.random() < 0.5:
        axes.imshow(rng.random((12, 12)) > 0.5, cmap="gray")
    else:
        axes.bar(range(12), rng.random(12))
        axes.legend(["measured"])
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., 2::-1].copy()
    plt.close(figure)
    return pixels


def _other_code(rng: np.random.Generator, kind: str) -> Image:
    page = text_page(rng)
    text = "".join(str(rng.integers(10)) for _ in range(12))
    code = zxingcpp.create_barcode(text, zxingcpp.barcode_format_from_str(kind))
    drawn = np.array(code.to_image(scale=4))[: HEIGHT - 200, : WIDTH - 200]
    page[100 : 100 + drawn.shape[0], 100 : 100 + drawn.shape[1]] = drawn[..., None]
    return page
