import cv2
import numpy as np
import pytest

from interleaved_assets.scoring.sharpness import sharpness, sharpness_grey
from interleaved_assets_tests.scoring.images import even, noise


def peer(image):
    """NeMo Curator's formula."""
    return float(cv2.Laplacian(image, cv2.CV_64F).var())


def test_an_even_image_has_none():
    assert sharpness(even(50, 70)) == 0.0
    assert sharpness_grey(even(50, 70)) == 0.0


def test_one_bright_pixel_by_hand():
    image = even(9, 9, 0)
    image[4, 4] = 10
    # the Laplacian is -40 at the pixel and 10 at its four neighbours, in three channels of 81 pixels; its mean is 0
    assert sharpness(image) == pytest.approx((40**2 + 4 * 10**2) / 81, rel=1e-12)
    assert sharpness_grey(image) == pytest.approx((40**2 + 4 * 10**2) / 81, rel=1e-12)


def test_a_checkerboard_is_as_sharp_as_it_gets():
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
