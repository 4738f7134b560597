import io
import random
import struct
from typing import Any

import cv2
import numpy as np
import pytest
import tifffile
from PIL import Image

from interleaved_assets.scoring.images import decode
from interleaved_assets.scoring.images.decode import decode_image, decode_plain
from interleaved_assets.scoring.images.decoders import decoders_for_threads
from interleaved_assets.scoring.images.plain_tiff import plain_tiff
from interleaved_assets.scoring.protocol.registry import prepare_scorers, scores_schema
from interleaved_assets.scoring.protocol.score import score_image
from interleaved_assets.scoring.protocol.settings import ScoringSettings
from interleaved_assets_tests.defects import stand_in

PICTURE = np.random.default_rng(7).integers(0, 256, (40, 33, 3), np.uint8)
MANY = 10**6


def by_pillow(**options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PICTURE).save(file, "TIFF", **options)
    return file.getvalue()


def by_tifffile(picture: np.ndarray = PICTURE, **options: Any) -> bytes:
    file = io.BytesIO()
    tifffile.imwrite(file, picture, **({"photometric": "rgb", "metadata": None} | options))
    return file.getvalue()


def photo(missing: int = 0) -> bytes:
    """A picture that is a complete JPEG file in one strip, which may lack its last bytes."""
    _, jpeg = cv2.imencode(".jpg", cv2.GaussianBlur(PICTURE, (9, 9), 0))
    strip = jpeg.tobytes()
    bits_at = 8 + 2 + 10 * 12 + 4
    entries = {256: 33, 257: 40, 258: bits_at, 259: 7, 262: 6, 273: bits_at + 6, 277: 3, 278: 40, 279: len(strip)}
    directory = b"".join(
        struct.pack("<HHII", tag, 3 if tag == 258 else 4, 3 if tag == 258 else 1, value)
        for tag, value in entries.items()
    )
    subsampling = struct.pack("<HHIHH", 530, 3, 2, 2, 2)
    content = struct.pack("<4sIH", b"II*\0", 8, 10) + directory + subsampling + bytes(4)
    content += struct.pack("<3H", 8, 8, 8) + strip
    return content[: len(content) - missing]


def with_strips_apart() -> bytes:
    """Strips with a byte between them, in reverse order."""
    content = bytearray(by_tifffile(rowsperstrip=20))
    header = plain_tiff(bytes(content))
    assert header is not None
    assert header.strips is not None
    places = []
    for offset, size in reversed(header.strips):
        content += b"\0"
        places.append(len(content))
        content += content[offset : offset + size]
    with tifffile.TiffFile(io.BytesIO(content)) as file:
        at = file.pages[0].tags["StripOffsets"].valueoffset
    struct.pack_into("<II", content, at, *reversed(places))
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "is_raw"),
    [
        (by_pillow(), True),
        (by_pillow(compression="jpeg", quality=80), False),
        (photo(), False),
        (by_pillow(dpi=(300, 300), description="a scan", software="a scanner"), True),
        (by_tifffile(byteorder=">", rowsperstrip=7), True),
        (by_tifffile(rowsperstrip=16), True),
        (with_strips_apart(), True),
    ],
)
def test_the_pixels_are_those_of_opencv(content: bytes, is_raw: bool) -> None:
    header = plain_tiff(content)
    assert header is not None
    assert (header.width, header.height, header.strips is not None) == (33, 40, is_raw)
    expected = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    found = decode_plain(content, max_pixels=MANY)
    assert found is not None
    assert found.flags.c_contiguous
    assert np.array_equal(found, expected)
    assert np.array_equal(decode_image(content), expected)
    if is_raw:
        assert np.array_equal(found[..., ::-1], PICTURE)


def test_a_photo_in_one_strip_is_decoded_as_the_jpeg_that_it_is() -> None:
    content = photo()
    header = plain_tiff(content)
    assert header is not None
    assert header.photo is not None
    offset, size = header.photo
    assert content[offset : offset + 2] == b"\xff\xd8"
    assert offset + size == len(content)
    assert plain_tiff(photo(missing=9)) is None
    assert decode_plain(photo(missing=9), max_pixels=MANY) is None


@pytest.mark.parametrize(
    "content",
    [
        by_pillow(compression="tiff_lzw"),
        by_tifffile(PICTURE[..., 0], photometric="minisblack"),
        by_tifffile(np.dstack([PICTURE, PICTURE[..., :1]]), extrasamples=["unassalpha"]),
        by_tifffile(PICTURE.astype(np.uint16)),
        by_tifffile(planarconfig="separate"),
        by_tifffile(tile=(16, 16)),
        by_tifffile(bigtiff=True),
        by_tifffile(extratags=[(274, "H", 1, 6, True)]),  # lies on its side
        by_tifffile(extratags=[(34675, "B", 4, b"abcd", True)]),  # a tag that is not listed
        by_pillow()[:-1],
        by_pillow()[:100],
        b"II*\0",
        b"II*\0\x08\0\0\0",
        b"\xff\xd8\xff",
        b"",
    ],
)
def test_everything_else_is_left_to_pillow(content: bytes) -> None:
    assert plain_tiff(content) is None
    assert decode_plain(content, max_pixels=MANY) is None


def test_a_picture_over_the_limit_is_left_to_pillow_which_says_so() -> None:
    assert decode_plain(by_pillow(), max_pixels=33 * 40 - 1) is None
    assert decode_plain(by_pillow(), max_pixels=33 * 40) is not None


def test_damaged_headers_get_the_scores_and_errors_that_they_had(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ScoringSettings(scorers=("sharpness",))
    scorers, draw = prepare_scorers(settings), random.Random(20261122)
    sound = [by_pillow(), by_pillow(compression="jpeg"), by_tifffile(byteorder=">", rowsperstrip=7)]
    damaged = []
    for _ in range(300):
        content = bytearray(draw.choice(sound))
        (first,) = struct.unpack_from("<I" if content[:2] == b"II" else ">I", content, 4)
        for _ in range(draw.randint(1, 2)):
            content[min(first + draw.randint(0, 160), len(content) - 1)] = draw.randrange(256)
        damaged.append(bytes(content))
    plain = sum(plain_tiff(content) is not None for content in damaged)
    assert 20 < plain < 280
    with decoders_for_threads():
        found = [score_image(content, scorers, max_pixels=MANY) for content in (*sound, *damaged)]
        assert {len(row) for row in found} == {len(scores_schema(settings)) - 2}
        stand_in(monkeypatch, decode, "plain_tiff", lambda _: None)
        assert found == [score_image(content, scorers, max_pixels=MANY) for content in (*sound, *damaged)]
