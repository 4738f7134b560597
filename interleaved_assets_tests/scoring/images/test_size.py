import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.model.errors import ImageError
from interleaved_assets.scoring.images.decode import decode_image
from interleaved_assets.scoring.images.size import aspect_ratio, image_size
from interleaved_assets_tests.scoring.drawn import encode, noise, with_orientation

KINDS = ("JPEG", "PNG", "WEBP", "TIFF", "GIF", "BMP", "JPEG2000", "PPM", "AVIF")


@pytest.mark.parametrize("kind", KINDS)
def test_size_from_the_header(kind):
    assert image_size(encode(noise(40, 60), kind)) == (60, 40)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_size_is_that_of_the_decoded_image_whatever_the_orientation(kind, orientation):
    data = with_orientation(noise(40, 60), kind, orientation)
    height, width = decode_image(data).shape[:2]
    assert image_size(data) == (width, height)


def test_a_sideways_photo_is_upright():
    assert image_size(with_orientation(noise(40, 60), "JPEG", 6)) == (40, 60)


def test_damaged_exif_counts_as_upright():
    data = with_orientation(noise(40, 60), "JPEG", 6).replace(b"Exif\0\0MM\0*", b"Exif\0\0MM\0?")
    assert image_size(data) == (60, 40)
    assert decode_image(data).shape == (40, 60, 3)


@pytest.mark.parametrize(
    "data", [b"", b"no image", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", b"\xff\xd8\xff"]
)
def test_bytes_that_are_not_an_image_raise_image_error(data):
    with pytest.raises(ImageError) as caught:
        image_size(data)
    assert caught.value.code == "undecodable_image"
    assert "0x" not in caught.value.error, "an address differs from run to run"


def test_a_decompression_bomb_is_refused_from_its_header():
    data = bytearray(encode(noise(8, 8), "BMP"))
    data[18:26] = (60_000).to_bytes(4, "little") * 2
    with pytest.raises(ImageError) as caught:
        image_size(bytes(data))
    assert caught.value.code == "too_many_pixels"


def test_aspect_ratio_is_width_by_height():
    assert aspect_ratio(60, 40) == 1.5
    assert aspect_ratio(40, 40) == 1.0
    assert aspect_ratio(1, 3) == 1 / 3


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::PIL.Image.DecompressionBombWarning")
@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", b"II*\0", b"RIFF", b"GIF89a"]),
)
def test_no_bytes_raise_anything_but_image_errors(tail, head):
    with contextlib.suppress(ImageError):
        assert min(image_size(head + tail)) >= 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(99), "image/heic, which is not decoded: convert it"),
        (b"\xff\x0a" + bytes(99), "image/jxl, which is not decoded: convert it"),
        (b"II*\0" + bytes(99), "image/tiff, damaged or of a kind that is not decoded"),
        (b"<html></html>" + bytes(99), "no image format that is known"),
    ],
)
def test_the_reason_names_the_format_of_an_image_that_is_not_decoded(data: bytes, reason: str) -> None:
    for measure in (image_size, decode_image):
        with pytest.raises(ImageError) as caught:
            measure(data)
        assert str(caught.value) == f"undecodable_image: {reason}"
