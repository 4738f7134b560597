import io

import numpy as np
import pytest
import tifffile
from PIL import Image

from interleaved_assets.export.reencode import as_jpeg
from interleaved_assets.model.errors import ImageError
from interleaved_assets.scoring.images.decode import decode_image
from interleaved_assets.scoring.images.jpeg_strips import check_jpeg_strips, strip_without_end

PICTURE = np.random.default_rng(5).integers(0, 256, (200, 160, 3), np.uint8)


def by_pillow(mode: str, **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PICTURE).convert(mode).save(file, "TIFF", compression="jpeg", **options)
    return file.getvalue()


def last_strip(content: bytes) -> tuple[int, int]:
    with tifffile.TiffFile(io.BytesIO(content)) as tiff:
        page = tiff.pages[0]
        return page.dataoffsets[-1], page.databytecounts[-1]


CASES = {
    "rgb": by_pillow("RGB"),
    "grey": by_pillow("L"),
    "cmyk": by_pillow("CMYK"),
    "many strips": by_pillow("RGB", strip_size=10_000),
}


@pytest.mark.parametrize("content", CASES.values(), ids=CASES)
@pytest.mark.parametrize("left", [0.0, 0.5, 0.99])
def test_a_jpeg_in_a_tiff_that_is_filled_with_zeros_to_its_end_is_undecodable(content: bytes, left: float) -> None:
    assert decode_image(content).shape == PICTURE.shape
    start, length = last_strip(content)
    kept = int(length * left)
    damaged = content[: start + kept] + bytes(length - kept) + content[start + length :]
    for read in (decode_image, as_jpeg):
        with pytest.raises(ImageError, match=r"^undecodable_image: "):
            read(damaged)
    with pytest.raises(ImageError, match=r"^undecodable_image: strip or tile \d+ of the TIFF is a JPEG without"):
        check_jpeg_strips(damaged)


@pytest.mark.parametrize("options", [{}, {"progressive": True}], ids=["baseline", "progressive"])
def test_a_jpeg_without_its_end_is_undecodable(options: dict[str, bool]) -> None:
    file = io.BytesIO()
    Image.fromarray(PICTURE).save(file, "JPEG", **options)
    jpeg = file.getvalue()
    assert decode_image(jpeg + bytes(9)).shape == PICTURE.shape
    for kept in (len(jpeg) // 2, len(jpeg) - 200, len(jpeg) - 2):
        for damaged in (jpeg[:kept], jpeg[:kept] + bytes(len(jpeg) - kept)):
            with pytest.raises(ImageError, match=r"^undecodable_image: "):
                decode_image(damaged)


@pytest.mark.parametrize("seed", range(8))
def test_a_photo_with_a_film_behind_it_is_decoded(seed: int) -> None:
    """Phones append an MP4 to a JPEG, in which any mark may occur, the start of a scan last."""
    file = io.BytesIO()
    Image.fromarray(PICTURE).save(file, "JPEG", progressive=bool(seed % 2))
    film = np.random.default_rng(seed).bytes(300_000)
    assert decode_image(file.getvalue() + film + b"\xff\xda").shape == PICTURE.shape


def test_bytes_after_the_end_mark_and_empty_strips_are_no_damage() -> None:
    file = io.BytesIO()
    Image.fromarray(PICTURE).save(file, "JPEG")
    jpeg = file.getvalue()
    assert strip_without_end(jpeg + bytes(9), [0, 0, 0], [len(jpeg), 0, len(jpeg) + 9]) is None
    assert strip_without_end(jpeg + bytes(9), [0, 0], [len(jpeg), len(jpeg) - 1]) == 1


def test_a_jpeg_that_is_filled_with_ff_to_its_end_is_undecodable_at_once() -> None:
    """Its markers are searched in time with its length: with the square of it, this would take hours."""
    file = io.BytesIO()
    Image.fromarray(PICTURE).save(file, "JPEG")
    with pytest.raises(ImageError, match="no end mark"):
        decode_image(file.getvalue()[:-2] + b"\xff" * 2_000_000)


def test_strips_that_overlap_are_not_all_searched() -> None:
    jpeg = b"\xff\xd8" + bytes(2_000_000) + b"\xff\xd9"
    many = range(100_000)
    assert strip_without_end(jpeg + bytes(9), many, [len(jpeg) + 9 - offset for offset in many]) == 2
    assert strip_without_end(jpeg + bytes(9), [0] * len(many), [len(jpeg) + 9] * len(many)) is None


def test_another_compression_and_another_file_are_left_to_the_decoder() -> None:
    file = io.BytesIO()
    Image.fromarray(PICTURE).save(file, "TIFF", compression="tiff_lzw")
    for content in (file.getvalue(), b"II*\0", b"", by_pillow("RGB")[:200]):
        check_jpeg_strips(content)
