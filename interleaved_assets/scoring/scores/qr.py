"""Share of an image covered by QR codes, with one of three detectors.

`docs/qr-detectors.md` compares them; the default, zxing-cpp followed by OpenCV's ArUco detector, finds the most codes.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, Literal, get_args

import cv2
import numpy as np
import zxingcpp
from numpy.typing import NDArray
from pydantic import Field

from interleaved_assets.model.errors import ImageError, MissingDependency, OptionError, row_error
from interleaved_assets.scoring.images.decode import BgrImage
from interleaved_assets.scoring.protocol.filter import Bound, Display, ImageFilter
from interleaved_assets.scoring.protocol.scorer import MeasureFunction, Range, Scorer, register_scorer

Quadrilateral = NDArray[np.float32]
"""Four corners in pixels, x to the right and y down, in order around the code; shape 4 x 2, float32."""
QrDetector = Literal["zxing+aruco", "opencv", "zbar"]
DEFAULT_DETECTOR: Final[QrDetector] = "zxing+aruco"


def qr_area_ratio(image: BgrImage, detector: QrDetector = DEFAULT_DETECTOR) -> float:
    """Return the area of all QR codes in the image ÷ area of the image, 0 (none found) to 1.

    The area of a code is that of the quadrilateral of its outer corners, without the quiet zone.

    Args:
        image: height x width x 3, uint8, blue-green-red.
        detector: ``zxing+aruco``, ``opencv`` or ``zbar``.

    Raises:
        ImageError: ``scorer_failed``, the detector failed on this image, so codes may have been missed.
    """
    height, width = image.shape[:2]
    covered = sum(cv2.contourArea(corners) for corners in qr_detector(detector)(image))
    # corners are estimates and may be outside the image
    return min(1.0, covered / (width * height))


def qr_detector(name: QrDetector) -> Callable[[BgrImage], list[Quadrilateral]]:
    """Return the function that finds codes; raise now if its library is missing, before any image is read.

    Raises:
        OptionError: the detector is unknown.
        MissingDependency: the detector's library is absent.
    """
    if name not in _DETECTORS:
        raise OptionError(f"qr_detector must be one of {', '.join(get_args(QrDetector))}, got {name!r}")
    if name == "zbar":
        _pyzbar()
    return _DETECTORS[name]


def find_with_zxing_and_aruco(image: BgrImage) -> list[Quadrilateral]:
    """Return codes that zxing-cpp reads, and its unreadable detections that ``QRCodeDetectorAruco`` confirms.

    OpenCV runs only on the few images where zxing-cpp reports an unreadable code: on pages of text most of these are
    not QR codes. A code that OpenCV finds counts if it overlaps an unreadable code and no code that was read.
    """
    found = zxingcpp.read_barcodes(
        # zxing-cpp converts colour to grey too, at twice the cost
        cv2.cvtColor(image, cv2.COLOR_BGR2GRAY),
        formats=zxingcpp.BarcodeFormat.QRCode,  # type: ignore[arg-type]  # the stub omits that one format will do
        return_errors=True,
    )
    readable = [_corners(code.position) for code in found if code.valid]
    unreadable = [_corners(code.position) for code in found if not code.valid]
    if not unreadable:
        return readable
    try:
        is_found, corners = cv2.QRCodeDetectorAruco().detectMulti(image)
    except cv2.error as error:
        raise ImageError(row_error("scorer_failed", f"qr: OpenCV's ArUco detector raised: {error.err}")) from error
    confirmed = [
        code
        for code in (np.asarray(code, dtype=np.float32) for code in (corners if is_found else ()))
        if any(_overlap(code, seen) for seen in unreadable) and not any(_overlap(code, read) for read in readable)
    ]
    return readable + confirmed


def _overlap(one: Quadrilateral, other: Quadrilateral) -> bool:
    # hulls, since the corners of an unreadable code may come in any order
    common, _ = cv2.intersectConvexConvex(cv2.convexHull(one), cv2.convexHull(other))
    return common > 0


def find_with_opencv(image: BgrImage) -> list[Quadrilateral]:
    """Find codes with OpenCV's ``QRCodeDetector``, without decoding, since decoding raises on many real images."""
    try:
        found, corners = cv2.QRCodeDetector().detectMulti(image)
    except cv2.error as error:
        raise ImageError(row_error("scorer_failed", f"qr: OpenCV's detector raised: {error.err}")) from error
    return [np.asarray(code, dtype=np.float32) for code in corners] if found else []


def find_with_zbar(image: BgrImage) -> list[Quadrilateral]:
    """Find codes with ZBar, which reads them."""
    pyzbar = _pyzbar()
    found = pyzbar.decode(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), symbols=[pyzbar.ZBarSymbol.QRCODE])
    return [np.array(code.polygon, dtype=np.float32) for code in found]


def _corners(position: zxingcpp.Position) -> Quadrilateral:
    corners = position.top_left, position.top_right, position.bottom_right, position.bottom_left
    return np.array([(corner.x, corner.y) for corner in corners], dtype=np.float32)


def _pyzbar() -> ModuleType:
    try:
        from pyzbar import pyzbar
    except (ImportError, OSError) as error:
        # OSError: the package is installed, but the C library or one of its dependencies is not
        raise MissingDependency(
            f"QR detector 'zbar' needs the system library libzbar, which cannot be loaded ({error}): run "
            f"'apt-get install libzbar0', or set qr_detector to '{DEFAULT_DETECTOR}'"
        ) from error
    return pyzbar


_DETECTORS: Final[dict[str, Callable[[BgrImage], list[Quadrilateral]]]] = {
    "zxing+aruco": find_with_zxing_and_aruco,
    "opencv": find_with_opencv,
    "zbar": find_with_zbar,
}


def _prepare(settings: Any) -> MeasureFunction:
    detector = settings.qr_detector
    qr_detector(detector)
    return lambda image: qr_area_ratio(image, detector)


register_scorer(
    Scorer(
        "qr",
        {"qr_area_ratio": "double"},
        _prepare,
        packages=("zxing-cpp",),
        ranges={"qr_area_ratio": Range(0, 1)},
        meanings={"qr_area_ratio": "Share of the image under QR codes, 0 to 1."},
        filters=(
            ImageFilter(
                "qr",
                ("qr_area_ratio",),
                open_maximum=True,
                maximum=Bound(
                    "max_qr_area_ratio",
                    "Share of QR codes in the image area must be below this, 0 to 1.",
                    0.05,
                    limits={"ge": 0, "le": 1},
                ),
                display=Display("QR code area", "QR area", unit="share of the image", zero_means="without a QR code"),
            ),
        ),
        options={
            "qr_detector": (
                QrDetector,
                Field(
                    default=DEFAULT_DETECTOR,
                    description="Detector of QR codes: zxing+aruco (zxing-cpp, and OpenCV's ArUco detector where "
                    "zxing-cpp detects a code that it cannot read), opencv (as in NeMo Curator), or zbar (needs "
                    f"Debian's libzbar0). Default {DEFAULT_DETECTOR}.",
                ),
            )
        },
        after="sharpness_256",
    )
)
