"""Sharpness: the variance of the Laplacian. Edges make it large, blur makes it small."""

from typing import Final

import cv2

from interleaved_assets.scoring.images.decode import BgrImage
from interleaved_assets.scoring.protocol.filter import Bound, Display, ImageFilter
from interleaved_assets.scoring.protocol.scorer import MeasureFunction, Range, Scorer, register_scorer

# Rows per strip. The Laplacian of a whole image is twice the image's size; allocating it for each image causes page
# faults that cost more than the arithmetic (1000 x 800 pixels with decoding and QR search: 10.3 ms, in strips 8.4 ms).
_STRIP_ROWS: Final = 64
SIDE: Final = 256
"""Short side in pixels to which an image is reduced for :func:`sharpness_256`."""


def sharpness(image: BgrImage) -> float:
    """Return the variance of the Laplacian over all pixels and channels, in grey levels squared; 0 for uniform colour.

    This is the definition of NeMo Curator's blur filter, ``cv2.Laplacian(image, cv2.CV_64F).var()``, so its threshold
    of 100 can be used here; channel order does not matter. Results agree to 1e-9 in a sixth of the time: the Laplacian
    of 8-bit values fits 16 bits exactly, and OpenCV sums it without a float64 copy.

    The measure was proposed for focusing microscopes by Pech-Pacheco et al., "Diatom autofocusing in brightfield
    microscopy" (ICPR 2000).

    Args:
        image: height x width x 3, uint8, blue-green-red (a grey image, height x width, works as well).
    """
    height = image.shape[0]
    total = squares = 0.0
    for top in range(0, height, _STRIP_ROWS):
        bottom = min(top + _STRIP_ROWS, height)
        # one more row on each side, so that the strip's edge is not treated as the image's
        first = max(top - 1, 0)
        edges = cv2.Laplacian(image[first : bottom + 1], cv2.CV_16S)[top - first : bottom - first]
        total += sum(cv2.sumElems(edges))
        squares += cv2.norm(edges, cv2.NORM_L2SQR)
    # rounding can make the variance of a uniform image slightly negative
    return max(0.0, squares / image.size - (total / image.size) ** 2)


def sharpness_grey(image: BgrImage) -> float:
    """Return the variance of the Laplacian of the grey image: the usual definition in papers, and cheaper.

    Noise of single colour channels averages out, so values are lower than those of :func:`sharpness`, for colour noise
    less than half. The two need different thresholds.
    """
    return sharpness(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY))


def sharpness_256(image: BgrImage) -> float:
    """Return the :func:`sharpness` of the image, reduced to a short side of 256 pixels by area averaging if larger.

    Enlarging an image lowers the variance of the Laplacian, since the same edge spreads over more pixels, so one
    threshold does not fit images of several resolutions. At a fixed size, an image and its enlargement have nearly the
    same value. See docs/sharpness.md for the threshold.
    """
    height, width = image.shape[:2]
    scale = SIDE / min(height, width)
    if scale < 1:
        size = max(SIDE, round(width * scale)), max(SIDE, round(height * scale))
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    return sharpness(image)


def _register(
    name: str, measure: MeasureFunction, after: str, meaning: str, bound: Bound, label: str, short: str, about: str = ""
) -> None:
    shown = Display(label, short, 1e-2, 1e5, "log", "variance of the Laplacian")
    register_scorer(
        Scorer(
            name,
            {name: "double"},
            lambda _settings: measure,
            ranges={name: Range(low=0)},
            meanings={name: meaning},
            filters=(ImageFilter(name, (name,), minimum=bound, display=shown),),
            about=about,
            after=after,
        )
    )


_FROM_ZERO: Final = {"ge": 0}
_register(
    "sharpness",
    sharpness,
    "size",
    "Variance of the Laplacian in colour, at full resolution; NeMo Curator's measure.",
    Bound("min_sharpness", "Smallest variance of the Laplacian in colour, from 0.", 100.0, limits=_FROM_ZERO),
    "Sharpness",
    "sharpness",
    about="defined as in NeMo Curator",
)
_register(
    "sharpness_grey",
    sharpness_grey,
    "sharpness",
    "Variance of the Laplacian in grey, at full resolution.",
    Bound("min_sharpness_grey", "Smallest variance of the Laplacian in grey, from 0.", limits=_FROM_ZERO),
    "Sharpness in grey",
    "grey sharpness",
)
_register(
    "sharpness_256",
    sharpness_256,
    "sharpness_grey",
    "Variance of the Laplacian in colour, at a short side of at most 256 pixels.",
    Bound(
        "min_sharpness_256",
        "Smallest variance of the Laplacian in colour at a short side of at most 256 pixels, from 0; fits images of "
        "all resolutions. Needs the scorer sharpness_256.",
        limits=_FROM_ZERO,
    ),
    "Sharpness at 256 pixels",
    "sharpness 256",
    about="independent of the resolution; recommended",
)
