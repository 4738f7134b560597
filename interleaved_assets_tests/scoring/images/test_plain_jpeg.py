import io
import random
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from interleaved_assets.scoring.images import decode, size
from interleaved_assets.scoring.images.decode import decode_plain
from interleaved_assets.scoring.images.decoders import decoders_for_threads
from interleaved_assets.scoring.images.plain_jpeg import plain_jpeg
from interleaved_assets.scoring.images.size import image_size
from interleaved_assets.scoring.protocol.registry import prepare_scorers
from interleaved_assets.scoring.protocol.score import score_image
from interleaved_assets.scoring.protocol.settings import ScoringSettings
from interleaved_assets_tests.defects import stand_in
from interleaved_assets_tests.scoring.drawn import with_orientation

PICTURE = cv2.GaussianBlur(np.random.default_rng(7).integers(0, 256, (40, 33, 3), np.uint8), (9, 9), 0)
MANY = 10**6


def jpeg(mode: str = "RGB", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PICTURE).convert(mode).save(file, "JPEG", **options)
    return file.getvalue()


def with_segment(kind: int, content: bytes, *, length: int | None = None) -> bytes:
    """The picture with one more segment before its others, which may state another length."""
    stated = len(content) + 2 if length is None else length
    return b"\xff\xd8\xff" + bytes([kind]) + stated.to_bytes(2, "big") + content + jpeg()[2:]


PLAIN = [
    jpeg(),
    jpeg(quality=1),
    jpeg(progressive=True),
    jpeg("L"),
    jpeg(subsampling=0, restart_marker_rows=1, dpi=(300, 300), comment=b"a flower"),
    jpeg(icc_profile=bytes(70_000)),
    with_segment(0xEE, b"Adobe\0d\0\0\0\0\1"),
    b"".join(part.tobytes() for part in cv2.imencode(".jpg", PICTURE)[1:]),
]
OTHERS = [
    jpeg("CMYK"),
    with_orientation(PICTURE, "JPEG", 6),
    with_orientation(PICTURE, "JPEG", 1),
    with_segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0<x/>"),
    with_segment(0xE2, b"MPF\0" + bytes(20)),
    with_segment(0xE2, b"ICC_PROFILE\0"),
    with_segment(0xE0, b"JFIF\0"),
    with_segment(0xEE, b"Adobe"),
    with_segment(0xFE, b"", length=1),
    with_segment(0xFE, b"", length=60_000),
    with_segment(0xDB, b"\x10" + bytes(128)),
    with_segment(0xDB, bytes(64)),
    with_segment(0xC0, b"\x08\0\x28\0\x21\x01\x01\x11\0"),
    with_segment(0xD9, b""),
    with_segment(0x01, b""),
    b"\xff\xd8\xff" + jpeg()[2:],
    jpeg().replace(b"\x08\0\x28\0\x21\x03", b"\x08\0\x00\0\x21\x03"),
    jpeg().replace(b"\x08\0\x28\0\x21\x03", b"\x0c\0\x28\0\x21\x03"),
    jpeg()[:150],
    b"\xff\xd8\xff",
    b"\xff\xd8",
    b"\x89PNG\r\n\x1a\n",
    b"",
]


@pytest.mark.parametrize("content", PLAIN)
def test_an_ordinary_jpeg_has_the_size_and_the_pixels_that_pillow_and_opencv_give(content: bytes) -> None:
    assert plain_jpeg(content) == (33, 40) == Image.open(io.BytesIO(content)).size
    assert image_size(content) == (33, 40)
    expected = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    found = decode_plain(content, max_pixels=33 * 40)
    assert found is not None
    assert np.array_equal(found, expected)
    assert decode_plain(content, max_pixels=33 * 40 - 1) is None, "Pillow opens it, and says that it is too large"


@pytest.mark.parametrize("content", OTHERS)
def test_everything_else_is_left_to_pillow(content: bytes) -> None:
    assert plain_jpeg(content) is None


def test_a_jpeg_that_is_cut_is_left_to_pillow_which_says_so() -> None:
    assert plain_jpeg(jpeg()[:-2]) == (33, 40)
    assert decode_plain(jpeg()[:-2], max_pixels=MANY) is None


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_damaged_headers_get_the_scores_and_errors_that_pillow_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    scorers, draw = prepare_scorers(ScoringSettings(scorers=("sharpness",))), random.Random(20261128)
    damaged = []
    for _ in range(600):
        content = bytearray(draw.choice(PLAIN))
        first = 2 if len(content) < 5_000 else len(content) - 1_000  # past the large profile
        for _ in range(draw.randint(1, 2)):
            content[draw.randrange(first, min(first + 640, len(content)))] = draw.randrange(256)
        damaged.append(bytes(content[: draw.choice((None, None, None, draw.randrange(len(content))))]))
    plain = sum(plain_jpeg(content) is not None for content in damaged)
    assert 100 < plain < 500
    with decoders_for_threads():
        rows = [(asked, content) for asked in ((), scorers) for content in (*PLAIN, *OTHERS, *damaged)]
        found = [score_image(content, asked, max_pixels=MANY) for asked, content in rows]
        for module in (decode, size):
            stand_in(monkeypatch, module, "plain_jpeg", lambda _: None)
        expected = [score_image(content, asked, max_pixels=MANY) for asked, content in rows]
    assert found == expected
