"""Contact sheets: layout, size limits, and what stands where a picture cannot be shown."""

import io

import numpy as np
import pytest
from PIL import Image

from interleaved_assets.reporting.chart import DROPPED, KEPT
from interleaved_assets.reporting.contact_sheet import COLUMNS, THUMBNAIL, Tile, contact_sheet


def picture(
    colour: tuple[int, int, int] = (200, 30, 30), size: tuple[int, int] = (300, 200), fmt: str = "PNG"
) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, fmt)
    return buffer.getvalue()


def noise(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (160, 160, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def opened(jpeg: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(jpeg)) as image:
        assert image.format == "JPEG"
        return np.asarray(image.convert("RGB")).astype(int)


def near(pixel: np.ndarray, colour: str | tuple[int, int, int]) -> bool:
    wanted = colour if isinstance(colour, tuple) else tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return bool(np.abs(pixel - np.array(wanted)).max() < 30)


def test_pictures_keep_their_shape_and_the_edge_shows_drops() -> None:
    tiles = [
        Tile(picture((200, 30, 30), (300, 200)), ("sharpness 41 < 100", "300×200"), dropped=True),
        Tile(picture((30, 160, 40), (100, 300), "JPEG"), ("sharpness 640",)),
    ]
    sheet = opened(contact_sheet(tiles))
    assert sheet.shape == (14 + THUMBNAIL + 4 + 2 * 14 + 14, 14 + 2 * THUMBNAIL + 14 + 14, 3)
    centre = 14 + THUMBNAIL // 2
    assert near(sheet[centre, centre], (200, 30, 30))
    assert near(sheet[centre, 14 + 4], (200, 30, 30))
    assert not near(sheet[14 + 4, centre], (200, 30, 30))
    right = centre + THUMBNAIL + 14
    assert near(sheet[14 + 4, right], (30, 160, 40))
    assert not near(sheet[centre, right - 40], (30, 160, 40))
    assert near(sheet[14 + THUMBNAIL + 1, centre], DROPPED)
    assert near(sheet[14 + THUMBNAIL + 1, right], KEPT)


def test_the_number_of_tiles_is_limited() -> None:
    sheet = opened(contact_sheet([Tile(picture(), ("caption",))] * 40, max_tiles=9))
    rows, columns = 2, COLUMNS
    assert sheet.shape[1] == 2 * 14 + columns * (THUMBNAIL + 14) - 14
    assert sheet.shape[0] == 2 * 14 + rows * (THUMBNAIL + 14 + 4 + 14) - 14


def test_quality_and_then_tiles_give_way_to_the_size_limit() -> None:
    tiles = [Tile(noise(seed), ("noise",)) for seed in range(24)]
    free = contact_sheet(tiles, max_bytes=10_000_000)
    limited = contact_sheet(tiles)
    small = contact_sheet(tiles, max_bytes=20_000)
    assert len(small) <= 20_000 < len(limited) <= 150_000 < len(free)
    assert opened(limited).shape == opened(free).shape
    assert opened(small).shape[0] < opened(free).shape[0]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"<html>403</html>", None),
        (b"", None),
        (picture()[:60], None),
        (None, "missing_member: the JSON names a.jpg"),
        (None, None),
    ],
    ids=["html", "empty", "cut", "missing", "unknown"],
)
def test_undecodable_pictures_get_a_tile_with_the_error(data: bytes | None, error: str | None) -> None:
    shown = opened(contact_sheet([Tile(picture((10, 10, 200))), Tile(data, ("caption",), True, error)]))
    tile = shown[14 : 14 + THUMBNAIL, 14 + THUMBNAIL + 14 : 14 + 2 * THUMBNAIL + 14]
    # a cross in the colour of drops, the code in ink below it, all else the empty backdrop
    assert near(tile[44, 60], DROPPED)
    assert (tile[66:90].min(axis=2) < 90).any()
    assert near(tile[4, 4], "#f1f3f6")


def test_long_captions_are_cut_and_other_scripts_are_no_obstacle() -> None:
    tiles = [
        Tile(picture(), ("a very long caption that would run into the next tile", "≥ × ü漢字", "")),
        Tile(picture()),
    ]
    sheet = opened(contact_sheet(tiles))
    gap = sheet[14 + THUMBNAIL + 6 :, 14 + THUMBNAIL + 1 : 14 + THUMBNAIL + 13]
    assert gap.min() > 230


def test_the_same_tiles_give_the_same_bytes() -> None:
    tiles = [Tile(noise(1), ("a",)), Tile(None, ("b",), True, "short_read: 3 of 5 bytes")]
    assert contact_sheet(tiles) == contact_sheet(tiles)


def test_no_tiles_and_an_impossible_limit_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one tile"):
        contact_sheet([])
    with pytest.raises(ValueError, match="no contact sheet fits into 100 bytes"):
        contact_sheet([Tile(noise(1))], max_bytes=100)
