import builtins
import ctypes.util
import itertools

import cv2
import numpy as np
import pytest

from interleaved_assets.model.errors import ImageError, MissingDependency, OptionError
from interleaved_assets.scoring.scores.qr import find_with_opencv, find_with_zxing_and_aruco, qr_area_ratio, qr_detector
from interleaved_assets_tests.scoring.drawn import even, noise, page_with, qr_code

HAS_ZBAR = ctypes.util.find_library("zbar") is not None
DETECTORS = [
    "zxing+aruco",
    "opencv",
    pytest.param(
        "zbar", marks=[pytest.mark.system, pytest.mark.skipif(not HAS_ZBAR, reason="libzbar0 is not installed")]
    ),
]


@pytest.mark.parametrize("detector", DETECTORS)
def test_area_of_one_code(detector):
    # 21 modules of 8 pixels are 168 pixels, on a page of 400 x 300
    page = page_with(qr_code(8), 300, 400, 60, 90)
    assert qr_area_ratio(page, detector) == pytest.approx(168**2 / (400 * 300), rel=0.03)


@pytest.mark.parametrize("detector", DETECTORS)
def test_codes_add_up(detector):
    page = page_with(qr_code(6, "one"), 400, 500, 30, 30)
    page[200:326, 300:426] = qr_code(6, "two")
    assert qr_area_ratio(page, detector) == pytest.approx(2 * 126**2 / (400 * 500), rel=0.05)


@pytest.mark.parametrize("detector", DETECTORS)
def test_no_code_is_zero(detector):
    for image in (even(300, 400), noise(300, 400, blur=2), even(1, 1), even(5, 400)):
        assert qr_area_ratio(image, detector) == 0.0


@pytest.mark.parametrize("turns", range(4))
def test_turned_and_inverted(turns):
    page = np.rot90(page_with(qr_code(8), 300, 400, 60, 90), turns)
    for image in (page, 255 - page):
        assert qr_area_ratio(np.ascontiguousarray(image)) == pytest.approx(168**2 / (400 * 300), rel=0.03)


def test_corners_go_around_the_code():
    (corners,) = find_with_zxing_and_aruco(page_with(qr_code(8), 300, 400, 60, 90))
    assert corners.shape == (4, 2)
    assert corners == pytest.approx(np.array([[90, 60], [258, 60], [258, 228], [90, 228]]), abs=2)


def test_a_ratio_is_never_above_one(monkeypatch):
    class Beyond:
        def detectMulti(self, _image):
            return True, np.array([[[-50, -50], [450, -50], [450, 350], [-50, 350]]], np.float32)

    monkeypatch.setattr(cv2, "QRCodeDetectorAruco", Beyond)
    assert qr_area_ratio(damaged_code()) == 1.0


def test_an_exception_of_opencv_is_an_error(monkeypatch):
    class Failing:
        def detectMulti(self, image):
            return cv2.resize(image, (0, 0))  # raises cv2.error

    monkeypatch.setattr(cv2, "QRCodeDetector", Failing)
    with pytest.raises(ImageError, match=r"^scorer_failed: qr: OpenCV's detector raised: \S"):
        find_with_opencv(even(50, 50))


def test_an_unknown_detector_names_the_known_ones():
    with pytest.raises(OptionError, match="zxing\\+aruco, opencv, zbar, got 'magic'"):
        qr_detector("magic")


def damaged_code():
    """A page with a code that zxing-cpp sees and cannot read: a hole larger than its error correction."""
    code = qr_code(8)
    code[70:130, 60:120] = 255
    return page_with(code, 300, 400, 60, 90)


def test_a_code_that_cannot_be_read_counts_where_both_detectors_see_it():
    assert qr_area_ratio(damaged_code()) == pytest.approx(168**2 / (400 * 300), rel=0.05)


def test_a_code_that_cannot_be_read_and_that_aruco_does_not_see_there_does_not_count(monkeypatch):
    elsewhere = np.array([[[300, 200], [390, 200], [390, 290], [300, 290]]], np.float32)

    class Elsewhere:
        def detectMulti(self, _image):
            return True, elsewhere

    monkeypatch.setattr(cv2, "QRCodeDetectorAruco", Elsewhere)
    assert qr_area_ratio(damaged_code()) == 0.0


def test_aruco_runs_only_for_unreadable_codes(monkeypatch):
    monkeypatch.setattr(cv2, "QRCodeDetectorAruco", lambda: pytest.fail("looked"))
    assert qr_area_ratio(page_with(qr_code(8), 300, 400, 60, 90)) > 0.2
    assert qr_area_ratio(noise(300, 400, blur=2)) == 0.0


def test_a_code_that_was_read_is_not_counted_again_beside_one_that_was_not():
    page = np.vstack([damaged_code(), page_with(qr_code(8, "read"), 300, 400, 60, 90)])
    assert qr_area_ratio(page) == pytest.approx(2 * 168**2 / (400 * 600), rel=0.05)


def test_an_exception_of_the_aruco_detector_is_an_error(monkeypatch):
    class Failing:
        def detectMulti(self, image):
            return cv2.resize(image, (0, 0))  # raises cv2.error

    monkeypatch.setattr(cv2, "QRCodeDetectorAruco", Failing)
    with pytest.raises(ImageError, match=r"^scorer_failed: qr: OpenCV's ArUco detector raised: \S"):
        qr_area_ratio(damaged_code())


@pytest.mark.parametrize(
    "reason",
    [ImportError("Unable to find zbar shared library"), OSError("libjpeg.so.62: cannot open shared object file")],
)
def test_without_libzbar_the_package_to_install_is_named(monkeypatch, reason):
    real_import = builtins.__import__

    def failing(name, *arguments, **options):
        if name.startswith("pyzbar"):
            raise reason
        return real_import(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", failing)
    with pytest.raises(MissingDependency, match=rf"{reason}.*apt-get install libzbar0"):
        qr_detector("zbar")


def test_zxing_finds_small_codes_at_their_position():
    code = qr_code(3)
    for top, left in itertools.product((0, 300, 730), (0, 500, 930)):
        page = page_with(code, 800, 1000, top, left)
        assert qr_area_ratio(page) == pytest.approx(63**2 / 800_000, rel=0.06), (top, left)
