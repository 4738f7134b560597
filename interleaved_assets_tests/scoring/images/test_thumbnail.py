import cv2
import numpy as np
import pytest

from interleaved_assets.scoring.images.thumbnail import thumbnail


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [(800, 1000, (102, 128)), (1000, 800, (128, 102)), (50, 60, (50, 60)), (1, 5000, (1, 128)), (3, 3, (3, 3))],
)
def test_the_longer_side_has_at_most_128_pixels(height: int, width: int, expected: tuple[int, int]) -> None:
    image = np.full((height, width, 3), (200, 100, 50), np.uint8)
    small = cv2.imdecode(np.frombuffer(thumbnail(image), np.uint8), cv2.IMREAD_COLOR)
    assert small.shape[:2] == expected
    assert np.abs(small.reshape(-1, 3).astype(int) - (200, 100, 50)).max() <= 3


def test_the_same_image_gives_the_same_bytes() -> None:
    image = np.random.default_rng(1).integers(0, 256, (300, 400, 3), np.uint8)
    assert thumbnail(image) == thumbnail(image.copy())
