"""Conversion of an image file to the square of pixels that a CLIP model takes, as open_clip's transform does it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import numpy as np
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image
from torchvision.transforms import Compose

from interleaved_assets.scoring.clip.samples import Pixels
from interleaved_assets.scoring.images.containers import Buffer
from interleaved_assets.scoring.images.decode import Reduction, check_pixels, decode_opened, one_image
from interleaved_assets.scoring.images.size import (
    DEFAULT_MAX_PIXELS,
    TURN_UPRIGHT,
    displayed_size,
    exif_orientation,
    open_header,
    pillow_result,
)

Resizer = Literal["pillow", "torch", "reduced"]

_FILTERS: Final = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}

# Modes that OpenCV and Pillow decode alike; OpenCV decodes without holding the interpreter's lock.
_PLAIN_MODES: Final = frozenset({"RGB", "L"})
# Pillow turns 16- and 32-bit samples nearly all white by clipping. The decoder brings them to 8 bits, or refuses.
_DEEP_MODES: Final = ("I", "F")
# Pillow scales these by taking the nearest pixel.
_NEAREST_MODES: Final = frozenset({"1", "P"})
# Long side ÷ short side from which only the part that the crop keeps is scaled: 20000 x 10 pixels would become
# 448000 x 224. For a part of an image Pillow may choose the other order of its two passes, and values near black and
# white may differ by some grey levels, so this is used only for images as narrow as lines.
_LINE_RATIO: Final = 256
_REDUCTIONS: Final[tuple[Reduction, ...]] = (8, 4, 2)
# A reduced image must be this many times larger than the model's input; docs/clip.md gives the effect on scores.
_AT_LEAST: Final = 2
# Above this size, torch is not faster, since it can only scale the whole image.
_LONG_RATIO: Final = 8


@dataclass(frozen=True)
class Preprocess:
    """Decode an image, apply its EXIF orientation, then open_clip's resize and crop.

    Conversion to float and normalization run on the device. All scorers here apply the EXIF orientation; open_clip
    leaves it to the caller.

    Attributes:
        config: open_clip's preprocessing configuration of the model.
        resizer: ``pillow`` gives the values of open_clip's transform. ``torch`` takes a ninth of the time; single
            values differ by one grey level, rarely by a few, which moves a cosine by some 1e-5. ``reduced`` is
            ``torch`` with large JPEGs decoded at a half, a quarter or an eighth of their size.
        max_pixels: width x height above which an image is refused.
    """

    config: PreprocessCfg
    resizer: Resizer
    max_pixels: int = DEFAULT_MAX_PIXELS

    @property
    def height_width(self) -> tuple[int, int]:
        """Size of the result of :meth:`__call__`."""
        _, height, width = self.config.input_size
        return height, width

    def __call__(self, data: Buffer) -> Pixels:
        """Return the image's pixels, :attr:`height_width` x 3, uint8, red-green-blue. The call is thread-safe.

        Raises:
            ImageError: ``undecodable_image``, ``too_many_pixels``, or ``scorer_failed`` if scaling fails.
        """
        with one_image("clip"):
            return self._prepared(data)

    def _prepared(self, data: Buffer) -> Pixels:
        header = open_header(data, max_pixels=self.max_pixels)
        if header.mode not in _PLAIN_MODES and not header.mode.startswith(_DEEP_MODES):
            check_pixels(header, self.max_pixels)
            orientation = exif_orientation(header)
            pillow_result(header.load)
            return self._scaled(header.transpose(TURN_UPRIGHT[orientation]) if orientation > 1 else header)
        if header.mode != "L" and self._is_for_torch(*header.size):
            size = displayed_size(header)  # before loading, which may change the metadata
            bgr = decode_opened(header, data, max_pixels=self.max_pixels, reduced=self._reduction(header))
            return self._scaled_by_torch(np.asarray(bgr, np.uint8), size)[..., ::-1]
        bgr = np.asarray(decode_opened(header, data, max_pixels=self.max_pixels), np.uint8)
        if header.mode == "L":
            return self._scaled(Image.fromarray(np.ascontiguousarray(bgr[..., 0])))
        # scaling treats the channels alike, so their order is changed on the small image
        return self._scaled(Image.fromarray(bgr))[..., ::-1]

    def _is_for_torch(self, width: int, height: int) -> bool:
        """Return whether torch scales colour images of this size; Pillow scales the others."""
        return self.resizer != "pillow" and self._side is not None and _ratio(width, height) <= _LONG_RATIO

    def _reduction(self, header: Image.Image) -> Reduction:
        """Return the largest reduction that leaves the image at least twice as large as the model's input."""
        if self.resizer != "reduced" or header.format != "JPEG":
            return 1
        spare = min(header.width // self.height_width[1], header.height // self.height_width[0]) // _AT_LEAST
        return next((reduction for reduction in _REDUCTIONS if reduction <= spare), 1)

    @cached_property
    def _transform(self) -> Compose:
        """Return open_clip's transform without its last two steps, to float and normalized."""
        return Compose(image_transform_v2(self.config, is_train=False).transforms[:-2])

    @property
    def _side(self) -> int | None:
        """The side of the square if the shortest side is scaled to it and the middle is cut out; else None."""
        height, width = self.height_width
        usual = height == width and self.config.resize_mode == "shortest" and self.config.interpolation in _FILTERS
        return height if usual else None

    def _scaled(self, image: Image.Image) -> Pixels:
        side = self._side
        if side is None or image.mode in _NEAREST_MODES or _ratio(image.width, image.height) <= _LINE_RATIO:
            return np.asarray(self._transform(image))
        # the box is in source pixels, and Pillow also reads the pixels around it
        (width, height), (left, top) = _scaled_size(image.width, image.height, side)
        across, down = image.width / width, image.height / height
        box = (left * across, top * down, (left + side) * across, (top + side) * down)
        scaled = image.resize((side, side), _FILTERS[self.config.interpolation], box=box)
        return np.asarray(scaled.convert("RGB"))

    def _scaled_by_torch(self, image: Pixels, full_size: tuple[int, int]) -> Pixels:
        """Return the middle of an image whose width and height were ``full_size`` before the decoder reduced it."""
        side = self.height_width[0]
        (width, height), (left, top) = _scaled_size(*full_size, side)
        if (height, width) != image.shape[:2]:
            values = torch.from_numpy(image).permute(2, 0, 1).unsqueeze(0)
            values = torch.nn.functional.interpolate(
                values, (height, width), mode=self.config.interpolation, antialias=True
            )
            image = values[0].permute(1, 2, 0).numpy()
        return image[top : top + side, left : left + side]


def _scaled_size(width: int, height: int, side: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return width and height with the shorter side scaled to ``side``, and left and top of the middle square."""
    # rounded as torchvision's Resize and CenterCrop round
    scaled = (side, int(side * height / width)) if width <= height else (int(side * width / height), side)
    return scaled, (round((scaled[0] - side) / 2), round((scaled[1] - side) / 2))


def _ratio(width: int, height: int) -> float:
    return max(width, height) / min(width, height)
