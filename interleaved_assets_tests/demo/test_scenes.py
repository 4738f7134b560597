"""Scenes come from the seed alone, their captions say what was drawn, and sharp and blurred ones are far apart."""

import io
import re

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from interleaved_assets.demo.backdrops import LANDSCAPES, PAPERS
from interleaved_assets.demo.scenes import (
    COLOURS,
    PLACES,
    RELATIONS,
    Composition,
    Group,
    blur,
    compose,
    draw_scene,
)
from interleaved_assets.demo.shapes import SHAPES, shape_mask

SHARPNESS_THRESHOLD = 100
MEADOW = LANDSCAPES[0]
CREAM = PAPERS[0]
SIZES = ((320, 240), (240, 320), (400, 300), (640, 480), (800, 600), (900, 260))


def sharpness(image: np.ndarray) -> float:
    return float(cv2.Laplacian(np.ascontiguousarray(image[..., ::-1]), cv2.CV_64F).var())


def mean_colour(image: np.ndarray, x: float, y: float) -> np.ndarray:
    """Mean RGB of a small patch; x and y from the centre in units of the short side."""
    height, width = image.shape[:2]
    side = min(height, width)
    column, row = round(width / 2 + x * side), round(height / 2 + y * side)
    return image[row - 3 : row + 4, column - 3 : column + 4].reshape(-1, 3).mean(axis=0)


def test_same_seed_same_bytes_other_seed_others() -> None:
    first, again, other = (draw_scene(np.random.default_rng(seed), 320, 240) for seed in (7, 7, 8))
    assert first.image.tobytes() == again.image.tobytes()
    assert first.caption == again.caption
    assert first.composition == again.composition
    assert other.image.tobytes() != first.image.tobytes()
    assert other.caption != first.caption


def test_global_random_state_plays_no_part() -> None:
    before = draw_scene(np.random.default_rng(3), 96, 80)
    np.random.seed(1)  # the point of this test is the global state
    cv2.setRNGSeed(5)
    after = draw_scene(np.random.default_rng(3), 96, 80)
    assert after.image.tobytes() == before.image.tobytes()


def test_image_is_rgb_uint8_of_the_size_asked_for() -> None:
    scene = draw_scene(np.random.default_rng(0), 97, 61)
    assert scene.image.shape == (61, 97, 3)
    assert scene.image.dtype == np.uint8


def test_too_small_a_scene_is_refused() -> None:
    with pytest.raises(ValueError, match="400×31 pixels: each side must have 32 or more"):
        draw_scene(np.random.default_rng(0), 400, 31)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sharp_scenes_lie_above_the_threshold_and_blurred_ones_below(size: tuple[int, int]) -> None:
    rng = np.random.default_rng(11)
    scenes = [draw_scene(rng, *size).image for _ in range(6)]
    assert min(sharpness(image) for image in scenes) > 5 * SHARPNESS_THRESHOLD
    assert max(sharpness(blur(image, 1.5)) for image in scenes) < 0.3 * SHARPNESS_THRESHOLD


@pytest.mark.parametrize(("image_format", "quality"), [("JPEG", 85), ("WEBP", 80)])
def test_compression_leaves_them_sharp(image_format: str, quality: int) -> None:
    rng = np.random.default_rng(12)
    for _ in range(6):
        buffer = io.BytesIO()
        Image.fromarray(draw_scene(rng, 400, 300).image).save(buffer, image_format, quality=quality)
        assert sharpness(np.asarray(Image.open(buffer))) > 2 * SHARPNESS_THRESHOLD


def test_blur_takes_one_channel_too() -> None:
    grey = cv2.cvtColor(draw_scene(np.random.default_rng(1), 64, 64).image, cv2.COLOR_RGB2GRAY)
    assert blur(grey, 2.0).shape == (64, 64)


@pytest.mark.parametrize(
    ("composition", "caption"),
    [
        (
            Composition((Group("star", "orange", 1, "small"),), "in the top left corner", MEADOW),
            "A small orange star in the top left corner, over a green meadow.",
        ),
        (
            Composition((Group("heart", "orange", 1),), "in the middle", CREAM),
            "An orange heart in the middle, on a cream background.",
        ),
        (
            Composition((Group("cross", "red", 3),), "at the top", CREAM),
            "Three red crosses in a row at the top, on a cream background.",
        ),
        (
            Composition((Group("ring", "blue", 4),), "on the right", CREAM),
            "Four blue rings in a column on the right, on a cream background.",
        ),
        (
            Composition((Group("square", "pink", 2), Group("circle", "orange", 1)), "to the left of", MEADOW),
            "Two pink squares to the left of an orange circle, over a green meadow.",
        ),
    ],
)
def test_caption_of_a_composition(composition: Composition, caption: str) -> None:
    assert composition.caption == caption
    assert draw_scene(np.random.default_rng(0), 64, 64, composition).caption == caption


@given(st.integers(0, 2**32))
def test_captions_say_every_attribute(seed: int) -> None:
    composition = compose(np.random.default_rng(seed))
    caption = composition.caption
    assert re.fullmatch(r"[A-Z][a-z ]+, [a-z ]+\.", caption)
    assert caption.count(composition.place) >= 1
    assert composition.place in (RELATIONS if len(composition.groups) == 2 else PLACES)
    assert caption.endswith(f", {composition.backdrop.phrase}.")
    lowered = caption.lower()
    for group in composition.groups:
        assert f"{group.colour} {group.shape}" in lowered
        assert group.colour not in composition.backdrop.avoid
        assert str(group) in lowered
        assert 1 <= group.count <= 4
    if len(composition.groups) == 2:
        first, second = composition.groups
        assert first.shape != second.shape
        assert first.colour != second.colour


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("place", PLACES)
def test_the_shape_stands_where_the_caption_says(colour: str, place: str) -> None:
    composition = Composition((Group("square", colour, 1, "small"),), place, PAPERS[16])
    for size in ((320, 240), (240, 320)):
        image = draw_scene(np.random.default_rng(5), *size, composition).image
        here = np.abs(mean_colour(image, *PLACES[place]) - COLOURS[colour]).max()
        assert here < 45
        others = [spot for name, spot in PLACES.items() if name != place]
        elsewhere = [np.abs(mean_colour(image, *spot) - COLOURS[colour]).max() for spot in others]
        assert min(elsewhere) > 45 or colour == "white"


def test_two_groups_stand_as_the_caption_says() -> None:
    groups = (Group("circle", "red", 1), Group("square", "blue", 1))
    for place, (x, y) in RELATIONS.items():
        image = draw_scene(np.random.default_rng(2), 300, 400, Composition(groups, place, CREAM)).image
        assert np.abs(mean_colour(image, 0.22 * x, 0.22 * y) - COLOURS["red"]).max() < 45
        assert np.abs(mean_colour(image, -0.22 * x, -0.22 * y) - COLOURS["blue"]).max() < 45


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("place", ["at the top", "on the left"])
def test_as_many_shapes_as_the_caption_says(count: int, place: str) -> None:
    composition = Composition((Group("circle", "red", count),), place, CREAM)
    image = draw_scene(np.random.default_rng(4), 640, 480, composition).image.astype(int)
    red = ((image[..., 0] > 120) & (image[..., 1] < 90)).astype(np.uint8)
    solid = cv2.morphologyEx(red, cv2.MORPH_OPEN, np.ones((5, 5), np.uint8))
    assert cv2.connectedComponents(solid)[0] - 1 == count


def test_compositions_cover_every_word() -> None:
    rng = np.random.default_rng(0)
    drawn = [compose(rng) for _ in range(1500)]
    groups = [group for composition in drawn for group in composition.groups]
    assert {group.shape for group in groups} == set(SHAPES)
    assert {group.colour for group in groups} == set(COLOURS)
    assert {group.count for group in groups} == {1, 2, 3, 4}
    assert {composition.place for composition in drawn} == {*PLACES, *RELATIONS}
    assert {composition.backdrop for composition in drawn} == {*PAPERS, *LANDSCAPES}
    # a swapped caption is nearly always another one
    assert len({composition.caption for composition in drawn}) > 0.97 * len(drawn)


def test_masks_of_the_shapes_differ_and_a_ring_has_a_hole() -> None:
    masks = {shape: shape_mask(shape, 20, 0.0) for shape in SHAPES}
    assert len({mask.tobytes() for mask in masks.values()}) == len(SHAPES)
    middle = masks["ring"].shape[0] // 2
    assert masks["ring"][middle, middle] == 0
    assert masks["circle"][middle, middle] == 255
