"""Images of every mode that Pillow has, as JPEG."""

import io

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image, TiffImagePlugin

from interleaved_assets.export.reencode import as_jpeg
from interleaved_assets.model.errors import ImageError
from interleaved_assets_tests.io.tars import encoded
from interleaved_assets_tests.scoring.drawn import noise, with_orientation

GREY, COLOURED = "L", "RGB"
# a file format that keeps the mode
FILES = [
    ("1", "PNG", GREY),
    ("L", "PNG", GREY),
    ("LA", "PNG", GREY),
    ("P", "PNG", COLOURED),
    ("RGB", "PNG", COLOURED),
    ("RGBA", "PNG", COLOURED),
    ("CMYK", "TIFF", COLOURED),
    ("YCbCr", "TIFF", COLOURED),
    ("LAB", "TIFF", COLOURED),
    ("PA", "TIFF", COLOURED),
    ("I", "TIFF", GREY),
    ("I;16", "TIFF", GREY),
    ("I;16B", "TIFF", GREY),
    ("F", "TIFF", GREY),
]
DARK, BRIGHT = 40, 200


def halves(mode: str) -> Image.Image:
    """The left half dark, the right half bright, 32 x 16 pixels, opaque."""
    grey = np.full((16, 32), DARK, np.uint8)
    grey[:, 16:] = BRIGHT
    if mode == "I;16B":
        return Image.frombytes(mode, (32, 16), (grey * np.uint16(256)).astype(">u2").tobytes())
    if mode == "I;16":
        return Image.fromarray(grey.astype(np.uint16) * 256)
    if mode in ("I", "F"):
        return Image.fromarray(grey.astype(np.int32 if mode == "I" else np.float32) * 1000 - 5)
    plain = Image.fromarray(grey)
    if mode == "PA":
        return plain.convert("P").convert("PA")
    if mode == "1":
        return plain.point(lambda value: 255 if value > 128 else 0).convert("1")
    return plain.convert("RGB").convert(mode) if mode in ("HSV", "LAB", "YCbCr", "CMYK", "P") else plain.convert(mode)


def assert_halves(image: Image.Image, mode: str) -> None:
    dark, bright = np.asarray(image.convert("L")).reshape(16, 2, 16).mean(axis=(0, 2))
    expected = (0, 255) if mode in ("1", "I", "F") else (DARK, BRIGHT)
    assert (dark, bright) == pytest.approx(expected, abs=4)


@pytest.mark.parametrize(("mode", "kind", "target"), FILES)
def test_a_file_of_every_mode(mode: str, kind: str, target: str) -> None:
    data = encoded(halves(mode), kind)
    with Image.open(io.BytesIO(data)) as image:
        assert image.mode == mode
    found = as_jpeg(data)
    with Image.open(io.BytesIO(found.content)) as jpeg:
        assert (jpeg.format, jpeg.mode, jpeg.size) == ("JPEG", target, (32, 16))
        assert_halves(jpeg, mode)
    assert (found.width, found.height) == (32, 16)


def test_grey_that_is_multiplied_by_alpha_is_divided_by_it() -> None:
    file = io.BytesIO()
    half = np.full((16, 16), 128, np.uint8)
    tifffile.imwrite(file, np.dstack([half // 2, half]), photometric="minisblack", extrasamples=["assocalpha"])
    with Image.open(file) as image:
        assert image.mode == "La"
    with Image.open(io.BytesIO(as_jpeg(file.getvalue()).content)) as jpeg:
        assert np.asarray(jpeg) == pytest.approx(127 * 0.5 + 255 * 0.5, abs=2)


@pytest.mark.parametrize(("mode", "clear"), [("RGBA", (10, 20, 30, 0)), ("LA", (10, 0)), ("P", None)])
def test_what_is_transparent_becomes_white(mode: str, clear: tuple[int, ...] | None) -> None:
    if clear is None:
        image = Image.new("P", (16, 16), 1)
        image.putpalette([255, 0, 0, 0, 0, 255])
        data = encoded(image, "PNG", transparency=1)
    else:
        data = encoded(Image.new(mode, (16, 16), clear))
    with Image.open(io.BytesIO(as_jpeg(data).content)) as jpeg:
        assert np.asarray(jpeg.convert("L")).min() >= 253


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF"])
def test_images_are_upright(kind: str, orientation: int) -> None:
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[:20, :30] = 255  # the first quarter
    found = as_jpeg(with_orientation(pixels, kind, orientation), quality=95)
    with Image.open(io.BytesIO(found.content)) as jpeg:
        assert jpeg.size == (found.width, found.height) == ((60, 40) if orientation < 5 else (40, 60))
        assert "exif" not in jpeg.info
        grey = np.asarray(jpeg.convert("L"))
    corners = {
        "top left": grey[:10, :10].mean(),
        "top right": grey[:10, -10:].mean(),
        "bottom right": grey[-10:, -10:].mean(),
        "bottom left": grey[-10:, :10].mean(),
    }
    expected = ["top left", "top right", "bottom right", "bottom left", "top left", "top right", "bottom right"]
    assert max(corners, key=lambda name: corners[name]) == [*expected, "bottom left"][orientation - 1]


def test_float_samples_that_are_no_numbers_are_black() -> None:
    row = np.array([[np.nan, np.inf, -np.inf, 1.0, 1.0, 3.0, 3.0, 3.0]], np.float32)
    assert greys(row.repeat(8, 0).repeat(8, 1))[4, 4::8].tolist() == [0, 255, 0, 0, 0, 255, 255, 255]
    assert greys(np.full((8, 8), 7.0, np.float32)).max() == 0


def greys(samples: NDArray[np.float32]) -> NDArray[np.uint8]:
    """What becomes of a TIFF with these samples, in blocks of 8 x 8 equal ones, which JPEG keeps."""
    with Image.open(io.BytesIO(as_jpeg(encoded(Image.fromarray(samples), "TIFF"), quality=100).content)) as jpeg:
        return np.asarray(jpeg)


def test_quality_and_profile_count() -> None:
    data = encoded(Image.fromarray(noise()), "PNG", icc_profile=b"a profile")
    small, large = (as_jpeg(data, quality=quality).content for quality in (20, 95))
    assert len(small) < len(large) / 2
    with Image.open(io.BytesIO(large)) as jpeg:
        assert jpeg.info["icc_profile"] == b"a profile"
    cmyk = encoded(halves("CMYK"), "TIFF", icc_profile=b"of CMYK")
    with Image.open(io.BytesIO(as_jpeg(cmyk).content)) as jpeg:
        assert "icc_profile" not in jpeg.info  # it is no profile of RGB


def test_only_the_first_frame_counts() -> None:
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("white", "black")]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    with Image.open(io.BytesIO(as_jpeg(data).content)) as jpeg:
        assert np.asarray(jpeg).min() >= 253


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "undecodable_image: 0 bytes"),
        (b"no image", "undecodable_image: "),
        (encoded(Image.fromarray(noise()))[:200], "undecodable_image: "),
        (encoded(Image.new("L", (200, 200))), "too_many_pixels: 200 x 200 pixels, the limit is 30000"),
    ],
)
def test_what_is_no_image_is_an_error(data: bytes, error: str) -> None:
    with pytest.raises(ImageError, match=error):
        as_jpeg(data, max_pixels=30_000)


def test_a_side_that_is_too_long_for_jpeg_is_an_error() -> None:
    with pytest.raises(ImageError, match="unencodable_image: 70000 x 1 pixels as JPEG"):
        as_jpeg(encoded(Image.new("L", (70_000, 1))))


@pytest.mark.parametrize(("kind", "profile"), [(2, "a text"), (4, 7)])
def test_a_colour_profile_of_another_type_is_left_out(kind: int, profile: object) -> None:
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags.tagtype[34675] = kind
    tags[34675] = profile
    file = io.BytesIO()
    halves("RGB").save(file, "TIFF", tiffinfo=tags)
    assert as_jpeg(file.getvalue())[1:] == (32, 16)
