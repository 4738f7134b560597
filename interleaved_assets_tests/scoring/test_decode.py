import io

import cv2
import numpy as np
import pyarrow as pa
import pytest
import tifffile

from interleaved_assets.model.errors import ImageError
from interleaved_assets.scoring.decode import decode_image
from interleaved_assets_tests.scoring.images import encode, noise, with_orientation

# Pillow warns of each oddity that it meets on its way to an error
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::PIL.Image.DecompressionBombWarning")

LOSSLESS = [
    ("PNG", {}),
    ("BMP", {}),
    ("TIFF", {}),
    ("TIFF", {"compression": "tiff_lzw"}),
    ("WEBP", {"lossless": True}),
    ("JPEG2000", {"irreversible": False}),
    ("PPM", {}),
]


@pytest.mark.parametrize(("kind", "options"), LOSSLESS)
def test_lossless_formats_give_the_very_pixels_in_blue_green_red(kind, options):
    image = noise()
    decoded = decode_image(encode(image, kind, **options))
    assert decoded.dtype == np.uint8
    assert np.array_equal(decoded, image)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, pa.py_buffer])
def test_any_kind_of_buffer(wrap):
    image = noise()
    assert np.array_equal(decode_image(wrap(encode(image))), image)


def test_jpeg_is_decoded_as_opencv_does():
    data = encode(noise(), "JPEG")
    assert np.array_equal(decode_image(data), cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_orientation_is_applied(kind):
    image = noise(40, 60, blur=3)
    turned = decode_image(with_orientation(image, kind, 6))
    upright = np.rot90(decode_image(encode(image, kind)), k=-1)
    assert np.array_equal(turned, upright)


def test_transparency_is_dropped_not_blended():
    image = noise()
    with_alpha = np.dstack([image, np.zeros(image.shape[:2], np.uint8)])
    data = cv2.imencode(".png", with_alpha)[1].tobytes()
    assert np.array_equal(decode_image(data), image)


def test_grey_becomes_three_equal_channels():
    decoded = decode_image(encode(noise(), mode="L"))
    assert np.array_equal(decoded[..., 0], decoded[..., 1])
    assert np.array_equal(decoded[..., 0], decoded[..., 2])


def test_sixteen_bits_lose_their_low_byte():
    image = noise()
    data = cv2.imencode(".png", image.astype(np.uint16) * 256 + 77)[1].tobytes()
    assert np.array_equal(decode_image(data), image)


def test_first_frame_of_several():
    first, second = noise(seed=1), noise(seed=2)
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, np.stack([first, second])[..., ::-1], photometric="rgb")
    assert np.array_equal(decode_image(buffer.getvalue()), first)


def test_what_opencv_cannot_read_goes_to_pillow():
    image = noise(32, 32)
    icon = encode(image, "ICO")
    assert cv2.imdecode(np.frombuffer(icon, np.uint8), cv2.IMREAD_COLOR) is None
    assert np.array_equal(decode_image(icon), image)


def test_cmyk_tiff_of_16_bits_goes_to_pillow():
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, np.zeros((20, 30, 4), np.uint16), photometric="separated")
    decoded = decode_image(buffer.getvalue())
    assert decoded.shape == (20, 30, 3)
    assert decoded.min() == 255, "no ink is white"


@pytest.mark.parametrize("dtype", [np.float32, np.uint32])
def test_samples_without_a_defined_white_are_refused(dtype):
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, np.ones((20, 30), dtype))
    with pytest.raises(ImageError, match=r"^undecodable_image: samples of mode '[IF]' have no defined white"):
        decode_image(buffer.getvalue())


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("TIFF", {"compression": "jpeg"}),
        ("AVIF", {}),
        ("GIF", {}),
        *LOSSLESS,
    ],
)
def test_a_truncated_file_is_no_image(kind, options, share):
    data = encode(noise(200, 300, blur=2), kind, **options)
    with pytest.raises(ImageError) as caught:
        decode_image(data[: int(len(data) * share)])
    assert caught.value.code == "undecodable_image"


def test_a_jpeg_without_its_end_marker_is_truncated():
    with pytest.raises(ImageError, match="undecodable_image: "):
        decode_image(encode(noise(), "JPEG")[:-2])


def test_bytes_behind_the_image_do_no_harm():
    data = encode(noise(), "JPEG")
    assert np.array_equal(decode_image(data + b"trailing"), decode_image(data))


def test_pixel_limit_is_inclusive_and_checked_before_decoding(monkeypatch):
    data = encode(noise(40, 60))
    assert decode_image(data, max_pixels=2400).shape == (40, 60, 3)
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    with pytest.raises(ImageError) as caught:
        decode_image(data, max_pixels=2399)
    assert caught.value.error == "too_many_pixels: 60 x 40 pixels, the limit is 2399"


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP", "GIF", "AVIF", "JPEG2000"])
def test_random_damage_gives_an_image_or_an_image_error(kind):
    rng = np.random.default_rng(7)
    whole = encode(noise(24, 36, blur=1), kind)
    refused = 0
    for _ in range(150):
        data = bytearray(whole)
        for place in rng.integers(0, min(len(data), 500), 4):
            data[place] = rng.integers(0, 256)
        try:
            image = decode_image(bytes(data), max_pixels=100_000)
            assert image.ndim == 3
            assert image.dtype == np.uint8
        except ImageError:
            refused += 1
    assert refused > 0
