"""Bytes of an image to the square of pixels that a CLIP model takes, as open_clip's own transform gives it."""

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
from interleaved_assets.scoring.images.options import DEFAULT_MAX_PIXELS
from interleaved_assets.scoring.images.size import (
    TURN_UPRIGHT,
    displayed_size,
    exif_orientation,
    open_header,
    pillow_result,
)

Resizer = Literal["pillow", "torch", "reduced"]

_FILTERS: Final = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}

# Images whose colours OpenCV and Pillow decode alike; OpenCV does so without holding the interpreter's lock.
_PLAIN_MODES: Final = frozenset({"RGB", "L"})
# Pillow turns 16- and 32-bit samples nearly all white by clipping. The decoder brings them to 8 bits, or refuses.
_DEEP_MODES: Final = ("I", "F")
# Pillow scales these by taking the nearest pixel.
_NEAREST_MODES: Final = frozenset({"1", "P"})
# Long side ÷ short side from which only what the crop keeps is scaled: 20000 x 10 pixels would become 448000 x 224. For
# a part of an image Pillow may choose the other order of its two passes, and values near black and white may differ by
# some grey levels, so this is for lines and rules alone.
_LINE_RATIO: Final = 256
_REDUCTIONS: Final[tuple[Reduction, ...]] = (8, 4, 2)
# How many times larger than the model's input a reduced image has to be; docs/clip.md says what that does to scores.
_AT_LEAST: Final = 2
# Above this torch, which can only scale the whole image, is no faster.
_LONG_RATIO: Final = 8


@dataclass(frozen=True)
class Preprocess:
    """From bytes to pixels. Open_clip's transform as far as the crop; to float and normalized is done on the device.

    The images are turned as their EXIF orientation says first, as every scorer here sees them; open_clip leaves that to
    the caller.

    Attributes:
        config: open_clip's preprocessing configuration of the model.
        resizer: ``pillow`` gives the values of open_clip's transform; ``torch`` takes a ninth of the time and differs
            by one grey level, rarely a few, here and there, which moves a cosine by some 1e-5; ``reduced`` is ``torch``
            with large JPEGs decoded in a half, a quarter or an eighth of their size.
        max_pixels: width x height above which an image is refused.
    """

    config: PreprocessCfg
    resizer: Resizer
    max_pixels: int = DEFAULT_MAX_PIXELS

    @property
    def height_width(self) -> tuple[int, int]:
        """Size of what :meth:`__call__` returns."""
        _, height, width = self.config.input_size
        return height, width

    def __call__(self, data: Buffer) -> Pixels:
        """The image's pixels, :attr:`height_width` x 3, uint8, red-green-blue. Safe to call from several threads.

        Raises:
            ImageError: ``undecodable_image``, ``too_many_pixels``, or ``scorer_failed`` where scaling fails.
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
        # scaling treats the channels alike, so their order is set right on the small image
        return self._scaled(Image.fromarray(bgr))[..., ::-1]

    def _is_for_torch(self, width: int, height: int) -> bool:
        """Return whether torch scales colour images of this size; the others are Pillow's."""
        return self.resizer != "pillow" and self._side is not None and _ratio(width, height) <= _LONG_RATIO

    def _reduction(self, header: Image.Image) -> Reduction:
        """The largest with which the image is still twice as large as the model takes it."""
        if self.resizer != "reduced" or header.format != "JPEG":
            return 1
        spare = min(header.width // self.height_width[1], header.height // self.height_width[0]) // _AT_LEAST
        return next((reduction for reduction in _REDUCTIONS if reduction <= spare), 1)

    @cached_property
    def _transform(self) -> Compose:
        """Open_clip's transform but for its last two steps, to float and normalized."""
        return Compose(image_transform_v2(self.config, is_train=False).transforms[:-2])

    @property
    def _side(self) -> int | None:
        """Side of the square where the shortest side is scaled to it and the middle cut out; None for any other way."""
        height, width = self.height_width
        usual = height == width and self.config.resize_mode == "shortest" and self.config.interpolation in _FILTERS
        return height if usual else None

    def _scaled(self, image: Image.Image) -> Pixels:
        side = self._side
        if side is None or image.mode in _NEAREST_MODES or _ratio(image.width, image.height) <= _LINE_RATIO:
            return np.asarray(self._transform(image))
        # the box is in source pixels, and Pillow looks beyond it for neighbours
        (width, height), (left, top) = _scaled_size(image.width, image.height, side)
        across, down = image.width / width, image.height / height
        box = (left * across, top * down, (left + side) * across, (top + side) * down)
        scaled = image.resize((side, side), _FILTERS[self.config.interpolation], box=box)
        return np.asarray(scaled.convert("RGB"))

    def _scaled_by_torch(self, image: Pixels, full_size: tuple[int, int]) -> Pixels:
        """The middle of an image whose width and height were ``full_size`` before the decoder reduced it."""
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
    """Width and height with the shorter side scaled to ``side``, and left and top of the square in the middle."""
    # rounded as torchvision's Resize and CenterCrop round
    scaled = (side, int(side * height / width)) if width <= height else (int(side * width / height), side)
    return scaled, (round((scaled[0] - side) / 2), round((scaled[1] - side) / 2))


def _ratio(width: int, height: int) -> float:
    return max(width, height) / min(width, height)
