"""Sharpness: the variance of the Laplacian. Edges make it large, blur makes it small."""

from typing import Final

import cv2

from interleaved_assets.scoring.decode import BgrImage

# Rows worked on at once. The Laplacian of a whole image is twice its size: an allocation that the C library takes from
# the system and gives back each time, whose page faults cost more than the arithmetic (10.3 ms an image of 1000 x 800
# with decoding and QR search, against 8.4 ms in strips).
_STRIP_ROWS: Final = 64
SIDE: Final = 256
"""Short side in pixels to which an image is reduced for :func:`sharpness_256`."""


def sharpness(image: BgrImage) -> float:
    """Variance of the Laplacian over all pixels and colour channels; 0 (even colour) and up, in grey levels squared.

    The definition of NeMo Curator's blur filter, ``cv2.Laplacian(image, cv2.CV_64F).var()``, so that its threshold of
    100 means the same here; channel order does not matter. Results agree to 1e-9 and take a sixth of the time: the
    Laplacian of 8-bit values fits 16 bits exactly, and OpenCV sums it without a copy in float64.

    The measure was proposed for focusing microscopes by Pech-Pacheco et al., "Diatom autofocusing in brightfield
    microscopy" (ICPR 2000).

    Args:
        image: height x width x 3, uint8, blue-green-red (a grey image, height x width, works as well).
    """
    height = image.shape[0]
    total = squares = 0.0
    for top in range(0, height, _STRIP_ROWS):
        bottom = min(top + _STRIP_ROWS, height)
        # a row more on either side, so that a strip's edge is not taken for the image's
        first = max(top - 1, 0)
        edges = cv2.Laplacian(image[first : bottom + 1], cv2.CV_16S)[top - first : bottom - first]
        total += sum(cv2.sumElems(edges))
        squares += cv2.norm(edges, cv2.NORM_L2SQR)
    # rounding may leave an even image a hair below zero
    return max(0.0, squares / image.size - (total / image.size) ** 2)


def sharpness_grey(image: BgrImage) -> float:
    """Variance of the Laplacian of the grey image: what most papers mean, cheaper, and on a scale of its own.

    Noise in single colour channels averages out, so values are lower than those of :func:`sharpness`, on colour noise
    less than half. A threshold for one is none for the other.
    """
    return sharpness(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY))


def sharpness_256(image: BgrImage) -> float:
    """:func:`sharpness` of the image reduced to a short side of 256 pixels by area averaging; never enlarged.

    Variance of the Laplacian falls with every enlargement, since the same edge then spreads over more pixels, so that
    one threshold cannot serve images of several resolutions. Here an edge is measured against the picture it is in:
    an image and the same image enlarged give nearly the same value. See docs/sharpness.md for the threshold.

    Args:
        image: height x width x 3, uint8, blue-green-red (a grey image, height x width, works as well).
    """
    height, width = image.shape[:2]
    scale = SIDE / min(height, width)
    if scale < 1:
        size = max(SIDE, round(width * scale)), max(SIDE, round(height * scale))
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    return sharpness(image)
