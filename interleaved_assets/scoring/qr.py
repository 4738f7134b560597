"""QR codes: how much of an image they cover, found by one of three detectors.

`docs/qr-detectors.md` compares them; zxing-cpp finds the most, fastest, and is the default.
"""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Final, Literal, get_args

import cv2
import numpy as np
import zxingcpp
from numpy.typing import NDArray

from interleaved_assets.model.errors import ImageError, MissingDependency, OptionError, row_error
from interleaved_assets.scoring.decode import BgrImage

QrDetector = Literal["zxing", "opencv", "zbar"]
Quadrilateral = NDArray[np.float32]
"""Four corners in pixels, x to the right and y down, in order around the code: shape 4 x 2."""


def qr_area_ratio(image: BgrImage, detector: QrDetector = "zxing") -> float:
    """Area of all QR codes in the image ÷ area of the image, 0 (none found) to 1.

    Each code counts with the quadrilateral between its outer corners, without the quiet zone around it.

    Args:
        image: height x width x 3, uint8, blue-green-red.
        detector: ``zxing``, ``opencv`` or ``zbar``.

    Raises:
        OptionError: no such detector.
        MissingDependency: the detector's library is absent.
        ImageError: ``scorer_failed``, the detector itself failed on this image. That is not "no code".
    """
    height, width = image.shape[:2]
    covered = sum(cv2.contourArea(corners) for corners in qr_detector(detector)(image))
    # corners are estimates and may lie outside the image
    return min(1.0, covered / (width * height))


def qr_detector(name: QrDetector) -> Callable[[BgrImage], list[Quadrilateral]]:
    """The function that finds codes; its library is looked for now, so that a missing one fails before work starts.

    Raises:
        OptionError: no such detector.
        MissingDependency: the detector's library is absent.
    """
    if name not in _DETECTORS:
        raise OptionError(f"qr_detector must be one of {', '.join(get_args(QrDetector))}, got {name!r}")
    if name == "zbar":
        _pyzbar()
    return _DETECTORS[name]


def find_with_zxing(image: BgrImage) -> list[Quadrilateral]:
    """Codes that zxing-cpp sees and can read. What it sees and cannot read is on pages of text more often no code."""
    found = zxingcpp.read_barcodes(
        # of colour zxing-cpp makes grey itself, at twice the cost
        cv2.cvtColor(image, cv2.COLOR_BGR2GRAY),
        formats=zxingcpp.BarcodeFormat.QRCode,  # type: ignore[arg-type]  # the stub omits that one format will do
    )
    return [_corners(code.position) for code in found]


def find_with_opencv(image: BgrImage) -> list[Quadrilateral]:
    """Codes that OpenCV's ``QRCodeDetector`` sees. It only detects: decoding is what raises on real images most.

    Raises:
        ImageError: ``scorer_failed``, OpenCV raised.
    """
    try:
        found, corners = cv2.QRCodeDetector().detectMulti(image)
    except cv2.error as error:
        raise ImageError(row_error("scorer_failed", f"qr: OpenCV's detector raised: {error.err}")) from error
    return [np.asarray(code, dtype=np.float32) for code in corners] if found else []


def find_with_zbar(image: BgrImage) -> list[Quadrilateral]:
    """Codes that ZBar sees and can read.

    Raises:
        MissingDependency: ``libzbar0`` is not installed.
    """
    pyzbar = _pyzbar()
    found = pyzbar.decode(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), symbols=[pyzbar.ZBarSymbol.QRCODE])
    return [np.array(code.polygon, dtype=np.float32) for code in found]


def _corners(position: zxingcpp.Position) -> Quadrilateral:
    corners = position.top_left, position.top_right, position.bottom_right, position.bottom_left
    return np.array([(corner.x, corner.y) for corner in corners], dtype=np.float32)


@functools.cache
def _pyzbar() -> ModuleType:
    try:
        from pyzbar import pyzbar
    except ImportError as error:
        # the package is there and its import fails where the C library is not
        raise MissingDependency(
            "QR detector 'zbar' needs the system library libzbar: run 'apt-get install libzbar0', "
            "or set qr_detector to 'zxing' or 'opencv'"
        ) from error
    return pyzbar


_DETECTORS: Final[dict[str, Callable[[BgrImage], list[Quadrilateral]]]] = {
    "zxing": find_with_zxing,
    "opencv": find_with_opencv,
    "zbar": find_with_zbar,
}
