"""Pictures of the demo documents: sharp scenes, blurred ones, and ones with a QR code of a known share of the area."""

import math
from dataclasses import dataclass, replace

import cv2
import numpy as np

from interleaved_assets.demo.scenes import blur, draw_scene

QUIET_ZONE = 4  # modules of white around a QR code, as ISO/IEC 18004 requires


@dataclass(frozen=True)
class Picture:
    """One image of a document, and its purpose in the demo.

    ``image`` has RGB pixels, uint8 of shape (height, width, 3), or (height, width) for a grey picture.
    """

    image: np.ndarray
    caption: str
    note: str

    @property
    def width(self) -> int:
        return int(self.image.shape[1])

    @property
    def height(self) -> int:
        return int(self.image.shape[0])


def sharp(rng: np.random.Generator, width: int, height: int) -> Picture:
    """Draw a scene and leave it sharp."""
    scene = draw_scene(rng, width, height)
    return Picture(scene.image, scene.caption, "sharp")


def blurred(rng: np.random.Generator, width: int, height: int, sigma: float) -> Picture:
    """Draw a scene out of focus, blurred by a Gaussian of ``sigma`` pixels."""
    picture = sharp(rng, width, height)
    return replace(picture, image=blur(picture.image, sigma), note=f"blurred, sigma {sigma:g} px")


def grey(picture: Picture) -> Picture:
    """Return the same picture with one channel."""
    image = cv2.cvtColor(picture.image, cv2.COLOR_RGB2GRAY)
    return replace(picture, image=image, note=f"{picture.note}, grey")


def with_qr_code(
    rng: np.random.Generator, picture: Picture, share: float, text: str, *, angle: float = 0.0, below: int = 0
) -> Picture:
    """Return ``picture`` with a QR code on about ``share`` of its area, 0 to 1, at random from line ``below`` on.

    The share counts the code's modules without its quiet zone. The note has the exact share, which depends on whole
    pixels per module. Raises ValueError if such a code, turned by ``angle`` degrees, does not fit.
    """
    height, width = picture.image.shape[:2]
    modules = qr_modules(text)
    count = modules.shape[0] - 2 * QUIET_ZONE
    scale = max(2, round(math.sqrt(share * width * height) / count))
    code = cv2.resize(modules, None, fx=scale, fy=scale, interpolation=cv2.INTER_NEAREST)
    patch, mask = _turned(code, angle)
    room_y, room_x = height - below - patch.shape[0], width - patch.shape[1]
    top, left = below + int(rng.integers(room_y + 1)), int(rng.integers(room_x + 1))
    image = picture.image.copy()
    region = image[top : top + patch.shape[0], left : left + patch.shape[1]]
    region[mask] = patch[mask][:, None]
    exact = (count * scale) ** 2 / (width * height)
    turned = f", turned by {angle:g}°" if angle else ""
    return replace(picture, image=image, note=f"QR code on {exact:.1%} of the area{turned}")


def flyer(rng: np.random.Generator, width: int, height: int, share: float, title: str, text: str) -> Picture:
    """Draw a printed page with a title, lines of type and a QR code on about ``share`` of its area."""
    page = np.full((height, width, 3), (250, 248, 242), np.uint8)
    accent = tuple(int(value) for value in rng.integers(30, 150, 3))
    band = height // 7
    cv2.rectangle(page, (0, 0), (width, band), accent, -1)
    cv2.putText(
        page, title, (16, int(band * 0.68)), cv2.FONT_HERSHEY_DUPLEX, band / 50, (255, 255, 255), 1, cv2.LINE_AA
    )
    for y in range(band + 18, height - 12, 14):
        # lines of type at thumbnail size: strokes as wide as words, with gaps between them
        x = 16
        while x < width - 16:
            length = int(rng.integers(14, 52))
            cv2.line(page, (x, y), (min(x + length, width - 16), y), (70, 70, 74), 3)
            x += length + 8
    picture = Picture(page, f"A printed flyer with the title {title}.", "printed page")
    return with_qr_code(rng, picture, share, text, below=band)


def qr_modules(text: str) -> np.ndarray:
    """Return the QR code of ``text``, one pixel a module, with its quiet zone; uint8, 0 is black and 255 white."""
    encoded = cv2.QRCodeEncoder.create().encode(text)
    # the width of the margin that OpenCV draws is not documented, so it is replaced
    black = np.flatnonzero((encoded == 0).any(axis=0))
    inner = slice(int(black[0]), int(black[-1]) + 1)
    return np.pad(encoded[inner, inner], QUIET_ZONE, constant_values=255)


def _turned(code: np.ndarray, angle: float) -> tuple[np.ndarray, np.ndarray]:
    """Return ``code`` turned about its centre in a patch that just holds it, and a mask of its place in the patch."""
    if not angle:
        return code, np.full(code.shape, True)
    side = code.shape[0]
    radians = math.radians(angle)
    size = math.ceil(side * (abs(math.cos(radians)) + abs(math.sin(radians))))
    matrix = cv2.getRotationMatrix2D((side / 2, side / 2), angle, 1.0)
    matrix[:, 2] += (size - side) / 2
    patch = cv2.warpAffine(code, matrix, (size, size), flags=cv2.INTER_LINEAR, borderValue=255)
    inside = cv2.warpAffine(np.full_like(code, 255), matrix, (size, size), flags=cv2.INTER_NEAREST, borderValue=0)
    return patch, inside > 0
