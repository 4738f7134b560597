"""The size of an image, which every table of scores has; it is known once the image is decoded."""

from typing import Final

import numpy as np

from interleaved_assets.scoring.protocol.filter import Bound, Display, ImageFilter
from interleaved_assets.scoring.protocol.scorer import ABOVE_ZERO, Range, Scorer, register_scorer

LARGEST_SIDE: Final = 2**31 - 1
"""Most pixels of a side that a bound may name."""
_PIXELS: Final = {"ge": 1, "le": LARGEST_SIDE}


register_scorer(
    Scorer(
        "size",
        {"width": "int32", "height": "int32", "aspect_ratio": "double"},
        packages=("opencv-python-headless", "pillow"),  # OpenCV and Pillow decode the images of all scorers
        ranges={"width": Range(low=1), "height": Range(low=1), "aspect_ratio": Range(low=ABOVE_ZERO)},
        meanings={"width": "Pixels.", "height": "Pixels.", "aspect_ratio": "Width / height."},
        filters=(
            ImageFilter(
                "short_side",
                ("width", "height"),
                combine=np.minimum,
                minimum=Bound(
                    "min_short_side", "Smallest short side of an image, in pixels.", dtype=int, limits=_PIXELS
                ),
                display=Display("Short side, pixels", "short side", 1, 1e5, "log"),
            ),
            ImageFilter(
                "long_side",
                ("width", "height"),
                combine=np.maximum,
                maximum=Bound("max_long_side", "Largest long side of an image, in pixels.", dtype=int, limits=_PIXELS),
                # the short side and the aspect ratio determine it
                display=Display("Long side, pixels", "long side", 1, 1e5, "log", only_bounded=True),
            ),
            ImageFilter(
                "aspect",
                ("aspect_ratio",),
                minimum=Bound("min_aspect_ratio", "Smallest width ÷ height, above 0.", limits={"gt": 0}),
                maximum=Bound("max_aspect_ratio", "Largest width ÷ height, above 0.", limits={"gt": 0}),
                display=Display("Aspect ratio", "aspect", 0.02, 50, "log", "width / height"),
            ),
        ),
    )
)
