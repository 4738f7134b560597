import io
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from interleaved_assets_tests.io.pdf.test_reader import read
from interleaved_assets_tests.io.pdfs import image_object, jpeg, shown, write_pdf

INVERTED = "/Decode [1 0 1 0 1 0 1 0]"


def halves(mode: str, upper: object, lower: object, form: str = "JPEG") -> bytes:
    image = Image.new(mode, (64, 64), lower)  # type: ignore[arg-type]
    image.paste(upper, (0, 0, 64, 32))  # type: ignore[arg-type]
    buffer = io.BytesIO()
    image.save(buffer, form)
    return buffer.getvalue()


def only_image(tmp_path: Path, image: bytes) -> tuple[str, bytes]:
    path = write_pdf(tmp_path / "a.pdf", [shown("Im", 50, 400, 64, 64)], [("Im", image)])
    (row,) = read(path)[1:]
    assert row["materialize_error"] is None
    return row["content_type"], row["binary_content"]


def colours(content: bytes) -> list[tuple[int, ...]]:
    image = Image.open(io.BytesIO(content)).convert("RGB")
    return [image.getpixel((32, y)) for y in (16, 48)]  # type: ignore[misc]


def test_an_image_whose_edge_alone_is_on_the_page_is_left_out(tmp_path: Path) -> None:
    image = ("Im", image_object(jpeg(1), "/DeviceRGB", "/DCTDecode"))
    found = read(write_pdf(tmp_path / "a.pdf", [shown("Im", 0, y, 600, 800) for y in (0, 799, -780)], [image]))
    assert [row["page"] for row in found if row["modality"] == "image"] == [1, 3]
    # the edge fills the page
    found = read(write_pdf(tmp_path / "b.pdf", [shown("Im", 0, -70_000, 600, 90_000)], [image]))
    assert [row["page"] for row in found if row["modality"] == "image"] == [1]


def test_a_packed_jpeg_is_copied_as_it_is(tmp_path: Path) -> None:
    content = jpeg(1)
    for filters, packed in (("[/FlateDecode /DCTDecode]", zlib.compress(content)), ("/DCTDecode", content)):
        assert only_image(tmp_path, image_object(packed, "/DeviceRGB", filters)) == ("image/jpeg", content)


def test_a_gray_jpeg_is_copied_unless_it_is_shown_inverted(tmp_path: Path) -> None:
    content = halves("L", 255, 20)
    assert only_image(tmp_path, image_object(content, "/DeviceGray", "/DCTDecode"))[1] == content
    kind, shown_as = only_image(tmp_path, image_object(content, "/DeviceGray", "/DCTDecode", "/Decode [1 0]"))
    assert kind == "image/png"
    assert colours(shown_as) == [(0, 0, 0), (235, 235, 235)]


def test_a_jpeg_of_one_ink_is_drawn(tmp_path: Path) -> None:
    ink = "[/Separation /Spot /DeviceRGB << /FunctionType 2 /Domain [0 1] /C0 [1 1 1] /C1 [1 0 0] /N 1 >>]"
    kind, content = only_image(tmp_path, image_object(halves("L", 0, 255), ink, "/DCTDecode"))
    assert kind == "image/png"
    assert colours(content) == [(255, 255, 255), (255, 0, 0)]


@pytest.mark.parametrize("has_marker", [True, False])
@pytest.mark.parametrize("is_inverted", [True, False])
def test_a_cmyk_jpeg_is_copied_only_if_it_decodes_to_what_is_shown(
    tmp_path: Path, has_marker: bool, is_inverted: bool
) -> None:
    content = halves("CMYK", (0, 0, 0, 0), (0, 255, 255, 0))
    if not has_marker:
        at = content.index(b"\xff\xee")
        content = content[:at] + content[at + 2 + int.from_bytes(content[at + 2 : at + 4], "big") :]
    kind, stored = only_image(
        tmp_path, image_object(content, "/DeviceCMYK", "/DCTDecode", INVERTED if is_inverted else "")
    )
    # pillow, as others, stores inks inverted and marks that
    assert kind == ("image/jpeg" if is_inverted else "image/png")
    assert (stored == content) == is_inverted
    (white, *_), (red, *_) = colours(stored)
    assert (white > 200, red > 200) == (is_inverted, is_inverted)


def test_a_jpeg_2000_file_is_copied_and_a_bare_codestream_drawn(tmp_path: Path) -> None:
    content = halves("RGB", (0, 0, 255), (255, 0, 0), "JPEG2000")
    assert only_image(tmp_path, image_object(content, "/DeviceRGB", "/JPXDecode")) == ("image/jp2", content)
    bare = content[content.index(b"\xff\x4f\xff\x51") :]
    kind, drawn = only_image(tmp_path, image_object(bare, "/DeviceRGB", "/JPXDecode"))
    assert kind == "image/png"
    assert np.abs(np.asarray(colours(drawn)) - [(0, 0, 255), (255, 0, 0)]).max() < 6


def test_an_image_that_cannot_be_decoded_has_the_same_error_each_time(tmp_path: Path) -> None:
    damaged = image_object(b"no JPEG", "/DeviceRGB", "/DCTDecode")
    (row,) = read(write_pdf(tmp_path / "a.pdf", [shown("Im", 50, 400, 64, 64)], [("Im", damaged)]))[1:]
    assert row["materialize_error"] == "undecodable_image: PdfiumError: Failed to get bitmap of image."
