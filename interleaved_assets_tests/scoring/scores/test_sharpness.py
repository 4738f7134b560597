import cv2
import numpy as np
import pytest

from interleaved_assets.scoring.scores.sharpness import sharpness, sharpness_256, sharpness_grey
from interleaved_assets_tests.scoring.drawn import even, noise


def peer(image):
    """NeMo Curator's formula."""
    return float(cv2.Laplacian(image, cv2.CV_64F).var())


def test_a_uniform_image_has_sharpness_zero():
    assert sharpness(even(50, 70)) == 0.0
    assert sharpness_grey(even(50, 70)) == 0.0


def test_one_bright_pixel_by_hand():
    image = even(9, 9, 0)
    image[4, 4] = 10
    # the Laplacian is -40 at the pixel and 10 at its four neighbours, in three channels of 81 pixels; its mean is 0
    assert sharpness(image) == pytest.approx((40**2 + 4 * 10**2) / 81, rel=1e-12)
    assert sharpness_grey(image) == pytest.approx((40**2 + 4 * 10**2) / 81, rel=1e-12)


def test_a_checkerboard_has_the_maximum_sharpness():
    board = np.indices((20, 30)).sum(axis=0) % 2 * 255
    image = np.dstack([board] * 3).astype(np.uint8)
    # every pixel differs from all its neighbours, so the Laplacian is 4 x 255 up or down everywhere
    assert sharpness(image) == pytest.approx((4 * 255) ** 2, rel=1e-12)


@pytest.mark.parametrize("shape", [(1, 1), (1, 90), (63, 40), (64, 40), (65, 40), (128, 3), (200, 301)])
@pytest.mark.parametrize("blur", [0, 1.5])
def test_equals_the_peers_formula_also_across_strips(shape, blur):
    image = noise(*shape, seed=shape[0], blur=blur)
    assert sharpness(image) == pytest.approx(peer(image), rel=1e-9, abs=1e-9)


def test_channel_order_does_not_matter():
    image = noise(100, 120)
    assert sharpness(image[..., ::-1].copy()) == pytest.approx(sharpness(image), rel=1e-12)


def test_blur_lowers_it():
    values = [sharpness(noise(100, 100, blur=blur)) for blur in (0, 1, 2, 4)]
    assert values == sorted(values, reverse=True)
    assert values[0] > 100 > values[-1]


def test_grey_is_another_scale():
    image = noise(100, 120)
    grey = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    assert sharpness_grey(image) == pytest.approx(peer(grey), rel=1e-9)
    assert sharpness_grey(image) < sharpness(image) / 2


def test_at_256_pixels_an_image_and_its_enlargement_measure_alike():
    image = noise(300, 400, blur=1.5)
    enlarged = cv2.resize(image, None, fx=3, fy=3, interpolation=cv2.INTER_CUBIC)
    assert sharpness_256(enlarged) == pytest.approx(sharpness_256(image), rel=0.15)
    assert sharpness(enlarged) < sharpness(image) / 10


@pytest.mark.parametrize("shape", [(256, 256), (256, 900), (40, 60), (1, 1), (3, 2000)])
def test_at_256_pixels_nothing_is_enlarged(shape):
    image = noise(*shape)
    assert sharpness_256(image) == sharpness(image)


@pytest.mark.parametrize("shape", [(512, 700), (700, 512)])
def test_at_256_pixels_the_short_side_is_reduced_by_area(shape):
    image = noise(*shape)
    size = (256, 350) if shape[1] == 512 else (350, 256)
    assert sharpness_256(image) == sharpness(cv2.resize(image, size, interpolation=cv2.INTER_AREA))
