import io
import struct
import zlib

import cv2
import numpy as np
import pyarrow as pa
import pytest
import tifffile
from PIL import Image, ImageFile, ImageOps

from interleaved_assets.model.errors import ImageError
from interleaved_assets.scoring.images import size
from interleaved_assets.scoring.images.decode import decode_image
from interleaved_assets.scoring.images.size import image_size
from interleaved_assets_tests.scoring.drawn import encode, noise, with_orientation

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


# Where OpenCV 5.0 gives wrong pixels without an error


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_signed_samples_are_not_taken_for_unsigned_ones(dtype):
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, np.arange(-60, 60, dtype=dtype).reshape(10, 12))
    with pytest.raises(ImageError, match=r"^undecodable_image: samples with a sign have no defined white$"):
        decode_image(buffer.getvalue())


@pytest.mark.parametrize("mode", ["RGB", "L", "1", "P", "CMYK"])
def test_a_strip_of_a_compressed_tiff_that_is_filled_with_zeros_is_undecodable(mode):
    buffer = io.BytesIO()
    Image.fromarray(noise(200, 300)).convert(mode).save(buffer, "TIFF", compression="tiff_lzw")
    data = bytearray(buffer.getvalue())
    with tifffile.TiffFile(io.BytesIO(data)) as tiff:
        start, length = tiff.pages[0].dataoffsets[-1], tiff.pages[0].databytecounts[-1]
    assert decode_image(data).shape == (200, 300, 3)
    data[start + length // 2 : start + length] = bytes(length - length // 2)
    with pytest.raises(ImageError, match=r"^undecodable_image: "):
        decode_image(data)


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate", "packbits"])
@pytest.mark.parametrize("mode", ["RGB", "L", "1", "P", "CMYK", "I;16"])
def test_a_compressed_tiff_has_the_pixels_that_opencv_gives(mode, compression):
    image = Image.fromarray(noise(40, 60))
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
    buffer = io.BytesIO()
    (image if mode == "I;16" else image.convert(mode)).save(buffer, "TIFF", compression=compression)
    data = buffer.getvalue()
    assert np.array_equal(decode_image(data), cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("prefix", [b"", b"Exif\0\0"])
def test_webp_is_turned_with_and_without_exif_prefix(orientation, prefix):
    image = noise(40, 60, blur=3)
    tag = b"MM\0*\0\0\0\x08\0\1\x01\x12\0\3\0\0\0\1\0" + bytes([orientation]) + b"\0\0\0\0\0\0"
    buffer = io.BytesIO()
    Image.fromarray(image[..., ::-1]).save(buffer, "WEBP", lossless=True, exif=prefix + tag)
    decoded = decode_image(buffer.getvalue())
    assert image_size(buffer.getvalue()) == decoded.shape[1::-1]
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(with_orientation(image, "TIFF", orientation))))
    assert np.array_equal(decoded[..., ::-1], np.asarray(upright))


def bitmap(header: int, bits: int, pixels: bytes, masks: bytes = b"", width: int = 4, height: int = 2) -> bytes:
    """A BMP whose header says ``masks`` for the channels, behind or, in 52 bytes, within it."""
    fields = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, 3 if masks else 0, len(pixels), 1, 1, 0, 0)
    start = 14 + len(fields) + len(masks)
    return b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start) + fields + masks + pixels


def test_channel_masks_within_a_bmp_header_of_52_bytes():
    masks = struct.pack("<III", 0xFF000000, 0x00FF0000, 0x0000FF00)
    pixels = np.arange(8, dtype="<u4").reshape(2, 4) * 0x0A000000 + 0x00140A00
    decoded = decode_image(bitmap(52, 32, pixels.tobytes(), masks))
    expected = np.dstack([(pixels >> shift) & 0xFF for shift in (8, 16, 24)])[::-1]
    assert np.array_equal(decoded, expected)


def test_white_of_five_bits_is_white():
    assert decode_image(bitmap(40, 16, b"\xff\x7f" * 8)).min() == 255


def test_an_animated_png_decodes_to_its_default_image():
    frames = [Image.new("RGB", (6, 4), colour) for colour in ((200, 10, 20), (0, 0, 255), (0, 255, 0))]
    buffer = io.BytesIO()
    frames[0].save(buffer, "PNG", save_all=True, append_images=frames[1:], default_image=True)
    assert decode_image(buffer.getvalue())[0, 0].tolist() == [20, 10, 200]


def test_a_transparent_pixel_of_a_gif_keeps_its_colour():
    picture = Image.new("P", (4, 4), 1)
    picture.putpalette([0, 0, 0, 250, 100, 50])
    buffer = io.BytesIO()
    picture.save(buffer, "GIF", transparency=1)
    assert decode_image(buffer.getvalue())[0, 0].tolist() == [50, 100, 250]


def test_colours_multiplied_by_their_alpha_are_divided_again():
    rgba = np.dstack([np.full((4, 5), value, np.uint8) for value in (100, 50, 25, 128)])
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, rgba, photometric="rgb", extrasamples=["assocalpha"])
    blue, green, red = decode_image(buffer.getvalue())[0, 0].astype(int)
    assert (red, green, blue) == pytest.approx((199, 99, 50), abs=1)


def chunk(name: bytes, content: bytes, length: int | None = None) -> bytes:
    said = len(content) if length is None else length
    return struct.pack(">I", said) + name + content + struct.pack(">I", zlib.crc32(name + content))


@pytest.mark.parametrize("wrap", [bytes, pa.py_buffer])
@pytest.mark.parametrize("name", [b"IDAT", b"tEXt", b"zzZz"])
def test_a_png_chunk_longer_than_the_file_is_refused_without_reading_it(name, wrap, monkeypatch):
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    whole = encode(noise(8, 8))
    data = whole[:33] + chunk(name, b"abc", 0x7FFFFFFF) + whole[33:]
    with pytest.raises(ImageError, match=rf"undecodable_image: .*truncated: PNG chunk {name.decode()} of 2147483647"):
        decode_image(wrap(data))


def icon(*images: tuple[int, int, bytes]) -> bytes:
    """An ICO file of images with the width and the bits that its entries say."""
    start = 6 + 16 * len(images)
    entries = contents = b""
    for side, bits, content in images:
        entries += struct.pack("<BBBBHHII", side % 256, side % 256, 0, 0, 1, bits, len(content), start + len(contents))
        contents += content
    return struct.pack("<HHH", 0, 1, len(images)) + entries + contents


def test_the_png_in_an_icon_is_not_decoded_above_the_limit(monkeypatch):
    large = encode(noise(100, 120))
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda *_: pytest.fail("decoded"))
    for data in (icon((16, 32, large)), icon((16, 32, b""), (32, 32, large))):
        with pytest.raises(ImageError) as caught:
            decode_image(pa.py_buffer(data), max_pixels=11_999)
        assert caught.value.error == "too_many_pixels: 120 x 100 pixels, the limit is 11999"
    assert image_size(icon((16, 32, large))) == (120, 100)


def test_a_bitmap_in_an_icon_is_refused_above_the_limit_before_it_is_opened(monkeypatch):
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("opened"))
    with pytest.raises(ImageError, match="too_many_pixels: 3000 x 2000 pixels, the limit is 5000000"):
        decode_image(icon((16, 32, struct.pack("<IiiHHI", 40, 3000, 4000, 1, 32, 0))), max_pixels=5_000_000)


def test_of_several_images_in_an_icon_the_largest_counts_as_in_pillow():
    small, large, deep = (encode(noise(side, side, seed=side)) for side in (16, 32, 33))
    data = icon((16, 32, small), (32, 8, large), (32, 32, deep))
    assert np.array_equal(decode_image(data), noise(32, 32, seed=32))
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))[..., ::-1], noise(32, 32, seed=32))


@pytest.mark.parametrize("data", [b"\0\0\1\0", b"\0\0\1\0\0\0", icon((16, 32, b""))[:-8], icon((16, 32, b"abc"))])
def test_a_truncated_icon_is_undecodable(data):
    with pytest.raises(ImageError, match="undecodable_image: the ICO file ends before its image"):
        decode_image(data)


def test_a_length_in_a_header_allocates_no_more_than_the_file():
    data = encode(noise(8, 8), "PPM")
    file = size._HeaderFile(memoryview(data))
    assert file.read(2**62) == data  # as much as no machine has


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
def test_a_truncated_file_is_undecodable(kind, options, share):
    data = encode(noise(200, 300, blur=2), kind, **options)
    with pytest.raises(ImageError) as caught:
        decode_image(data[: int(len(data) * share)])
    assert caught.value.code == "undecodable_image"


def test_a_jpeg_without_its_end_marker_is_truncated():
    with pytest.raises(ImageError, match="undecodable_image: "):
        decode_image(encode(noise(), "JPEG")[:-2])


def test_bytes_after_the_image_are_ignored():
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
