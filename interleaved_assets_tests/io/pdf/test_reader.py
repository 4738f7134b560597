import errno
import io
import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from interleaved_assets.demo.pdf_report import pdf_bytes, stream
from interleaved_assets.io.pdf import child, reader
from interleaved_assets.io.pdf.reader import read_pdf
from interleaved_assets.io.pdf.settings import PdfSettings
from interleaved_assets.io.storage.limits import LIMITS, TarLimits
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.model.errors import ShardError, StorageError
from interleaved_assets_tests.defects import stand_in
from interleaved_assets_tests.io.pdfs import flat_image, jpeg, jpeg_image, shown, text, write_pdf


def read(uri: str | Path, *, limits: TarLimits | None = None, **settings: Any) -> list[dict[str, Any]]:
    options = ReadOptions(limits=limits or LIMITS, sections={"pdf": PdfSettings(**settings)})
    return pa.concat_tables(read_pdf(str(uri), options)).to_pylist()


def test_text_in_order_with_the_jpeg_as_stored_in_its_place(tmp_path: Path) -> None:
    content = jpeg(1)
    page = (
        text(50, 700, "First paragraph on", "two lines.") + shown("Im", 50, 400, 200, 200) + text(50, 300, "After it.")
    )
    rows = read(
        write_pdf(tmp_path / "a.pdf", [page, text(50, 700, "Page two.")], [("Im", jpeg_image(content))], title="T\0")
    )
    assert [(row["position"], row["modality"], row["text_content"], row["page"]) for row in rows] == [
        (-1, "metadata", None, None),
        (0, "text", "First paragraph on two lines.", 1),
        (1, "image", None, 1),
        (2, "text", "After it.", 1),
        (3, "text", "Page two.", 2),
    ]
    assert (rows[2]["content_type"], rows[2]["binary_content"]) == ("image/jpeg", content)
    assert (rows[0]["pages"], rows[0]["pages_without_text"], rows[0]["title"]) == (2, [], "T")
    assert {row["sample_id"] for row in rows} == {"a.pdf"}
    assert [row["materialize_error"] for row in rows] == [None] * 5


def test_a_file_of_another_storage_is_read_like_a_local_one(tmp_path: Path) -> None:
    local = write_pdf(tmp_path / "a.pdf", [shown("Im", 50, 400, 200, 200)], [("Im", jpeg_image(jpeg(1)))])
    fsspec.filesystem("memory").pipe("/pdf/a.pdf", Path(local).read_bytes())
    there, here = read("memory://pdf/a.pdf"), read(local)
    assert [{**row, "source_ref": None} for row in there] == [{**row, "source_ref": None} for row in here]
    assert there[1]["binary_content"] == jpeg(1)


def test_two_columns_are_read_one_after_the_other(tmp_path: Path) -> None:
    left, right = (text(x, 700, *(f"{name} {at}" for at in range(5))) for x, name in ((50, "left"), (320, "right")))
    rows = read(write_pdf(tmp_path / "a.pdf", [left + right]))
    assert [row["text_content"] for row in rows[1:]] == [
        " ".join(f"{name} {at}" for at in range(5)) for name in ("left", "right")
    ]


def test_an_image_that_is_no_jpeg_is_png_with_the_same_pixels(tmp_path: Path) -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (40, 30, 3), np.uint8)
    rows = read(write_pdf(tmp_path / "a.pdf", [shown("Im", 50, 400, 30, 40)], [("Im", flat_image(pixels))]))
    (image,) = [row for row in rows if row["modality"] == "image"]
    assert image["content_type"] == "image/png"
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(image["binary_content"])).convert("RGB")), pixels)


def test_a_mask_is_applied(tmp_path: Path) -> None:
    mask = np.zeros((64, 64), np.uint8)
    mask[:, 32:] = 255
    objects = [("Im", jpeg_image(jpeg(1), mask=6)), ("Mask", flat_image(mask))]
    rows = read(write_pdf(tmp_path / "a.pdf", [shown("Im", 50, 400, 64, 64)], objects))
    (image,) = [row for row in rows if row["modality"] == "image"]
    alpha = np.asarray(Image.open(io.BytesIO(image["binary_content"])).convert("RGBA"))[:, :, 3]
    assert image["content_type"] == "image/png"
    assert (alpha[:, :30] == 0).all()
    assert (alpha[:, 34:] == 255).all()


def test_small_images_are_left_out(tmp_path: Path) -> None:
    objects = [("Im", jpeg_image(jpeg(1, side=8)))]
    path = write_pdf(tmp_path / "a.pdf", [text(50, 700, "Text.") + shown("Im", 50, 400, 100, 100)], objects)
    assert [row["modality"] for row in read(path)] == ["metadata", "text"]
    assert [row["modality"] for row in read(path, min_image_side=8)] == ["metadata", "text", "image"]


def test_a_typed_page_keeps_the_fonts_and_images_that_it_inherits(tmp_path: Path) -> None:
    """So do FPDF and others name them, once for all pages."""
    note = b"<< /Type /Annot /Subtype /FreeText /F 4 /Rect [120 690 320 710] /AP << /N 5 0 R >> >>"
    fields = "/Type /XObject /Subtype /Form /BBox [0 0 200 20] /Resources << /Font << /F1 3 0 R >> >>"
    objects = [("Ap", stream(fields, text(2, 5, "Alice"))), ("Note", note), ("Im", jpeg_image(jpeg(1)))]
    objects += [("Font", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 9 0 R >>")]
    cmap = b"1 begincodespacerange <00> <ff> endcodespacerange\n1 beginbfchar\n<78> <00590065>\nendbfchar"
    content = pdf_bytes([text(50, 750, "x") + shown("Im", 50, 400, 200, 200)], [*objects, ("Cmap", stream("", cmap))])
    own = content[content.rindex(b"/Resources") : content.rindex(b"/Contents")]
    inherited = b"/Type /Pages " + own.replace(b"/F1 3 0 R", b"/F1 8 0 R")
    (tmp_path / "a.pdf").write_bytes(content.replace(own, b"/Annots [6 0 R] ").replace(b"/Type /Pages", inherited))
    rows = read(tmp_path / "a.pdf")[1:]
    assert [(row["modality"], row["text_content"]) for row in rows] == [
        ("text", "Ye"),
        ("text", "Alice"),
        ("image", None),
    ]


def test_what_stands_outside_of_the_page_as_it_is_shown_is_left_out(tmp_path: Path) -> None:
    page = (
        text(50, 700, "Seen.") + text(50, 300, "Cut off.") + shown("Im", 50, 100, 64, 64) + shown("Im", 50, 600, 64, 64)
    )
    path = Path(write_pdf(tmp_path / "a.pdf", [page], [("Im", jpeg_image(jpeg(1)))]))
    path.write_bytes(path.read_bytes().replace(b"/MediaBox", b"/CropBox [0 400 600 800] /MediaBox"))
    rows = read(str(path))[1:]
    assert [(row["modality"], row["text_content"]) for row in rows] == [("text", "Seen."), ("image", None)]


def test_a_page_whose_crop_box_does_not_meet_it_is_read_whole(tmp_path: Path) -> None:
    path = Path(write_pdf(tmp_path / "a.pdf", [text(50, 700, "Seen.")]))
    path.write_bytes(path.read_bytes().replace(b"/MediaBox", b"/CropBox [2000 2000 3000 3000] /MediaBox"))
    assert [row["text_content"] for row in read(path)[1:]] == ["Seen."]


def test_pages_without_text_are_named_and_become_images_if_wished(tmp_path: Path) -> None:
    objects = [("Im", jpeg_image(jpeg(1)))]
    path = write_pdf(tmp_path / "a.pdf", [text(50, 700, "Text."), shown("Im", 0, 0, 600, 400)], objects)
    assert read(path)[0]["pages_without_text"] == [2]
    notes = Counter[str]()
    list(read_pdf(path, ReadOptions(notes=notes)))
    assert notes == {"no_text_layer": 1}
    rows = read(path, page_images=True, page_dpi=72)
    (_, page) = [row["binary_content"] for row in rows if row["modality"] == "image"]
    assert Image.open(io.BytesIO(page)).size == (600, 800)


def test_the_image_of_a_page_shows_its_notes_and_no_hidden_layer(tmp_path: Path) -> None:
    form = stream("/Type /XObject /Subtype /Form /BBox [0 0 100 100]", b"0 0 100 100 re f")
    note = b"<< /Type /Annot /Subtype /Stamp /F 4 /Rect [400 600 500 700] /AP << /N 5 0 R >> >>"
    layer = b"<< /Type /OCG /Name (Draft) >>"
    page = b"/OC /Hidden BDC 0 0 300 400 re f EMC"
    content = pdf_bytes([page], [("Ap", form), ("Note", note), ("Layer", layer)])
    content = content.replace(
        b"/Type /Catalog", b"/Type /Catalog /OCProperties << /OCGs [7 0 R] /D << /OFF [7 0 R] >> >>"
    )
    content = content.replace(b"/Resources <<", b"/Annots [6 0 R] /Resources << /Properties << /Hidden 7 0 R >>")
    (tmp_path / "a.pdf").write_bytes(content)
    (row,) = read(tmp_path / "a.pdf", page_images=True, page_dpi=72)[1:]
    shown_page = Image.open(io.BytesIO(row["binary_content"])).convert("L")
    assert shown_page.size == (600, 800)
    assert [shown_page.getpixel(at) for at in ((450, 150), (150, 600))] == [0, 255]


def test_an_image_that_covers_its_page_is_not_drawn_again(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", [shown("Im", 0, 0, 600, 700)], [("Im", jpeg_image(content := jpeg(1)))])
    rows = read(path, page_images=True)
    assert [row["binary_content"] for row in rows[1:]] == [content]


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("/Widget /FT /Tx /T (name) /V (Alice)", b" /AcroForm << /Fields [6 0 R] >>"),
        ("/Widget /FT /Tx /T (name) /V (Alice)", b""),  # as in pages that were taken out of a form
        ("/FreeText /Contents (Alice)", b""),
    ],
)
def test_what_is_filled_in_a_form_or_typed_on_a_page_is_text(tmp_path: Path, kind: str, form: bytes) -> None:
    fields = "/Type /XObject /Subtype /Form /BBox [0 0 200 20] /Resources << /Font << /F1 3 0 R >> >>"
    widget = f"<< /Type /Annot /Subtype {kind} /F 4 /Rect [120 690 320 710] /AP << /N 5 0 R >> >>".encode()
    objects = [("Ap", stream(fields, text(2, 5, "Alice"))), ("Field", widget)]
    content = pdf_bytes([text(50, 695, "Name:") + text(50, 600, "Below.")], objects)
    content = content.replace(b"/Type /Catalog", b"/Type /Catalog" + form)
    (tmp_path / "a.pdf").write_bytes(content.replace(b"/Type /Page /Parent", b"/Type /Page /Annots [6 0 R] /Parent"))
    assert "Alice" in " ".join(row["text_content"] for row in read(tmp_path / "a.pdf")[1:])


@pytest.mark.parametrize("content", [b"", b"no PDF", b"%PDF-1.7\n", b"%PDF-1.7\n1 0 obj\n<< >>\n"])
def test_what_is_no_pdf_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.pdf").write_bytes(content)
    with pytest.raises(
        ShardError, match=r"a\.pdf cannot be read as PDF: .*[^.]\. It is damaged or no PDF: fetch or write it again"
    ):
        read(tmp_path / "a.pdf")


def test_a_disk_that_fails_leaves_nothing_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = text(72, 700, "A text.") + shown("I", 72, 400, 200, 200)
    uri = write_pdf(
        tmp_path / "a.pdf",
        [page],
        [("I", flat_image(np.random.default_rng(1).integers(0, 256, (200, 200, 3), np.uint8)))],
    )
    stand_in(monkeypatch, reader, "read_frames", in_this_process)
    readv, reads = os.readv, [0, 0]

    def counted(descriptor: int, buffers: list[memoryview]) -> int:
        reads[0] += 1
        if reads[0] == reads[1]:
            raise OSError(errno.EIO, "Input/output error")
        return readv(descriptor, buffers)

    monkeypatch.setattr(os, "readv", counted)
    wanted = read(uri)
    number = reads[0]
    assert number > 1
    for failing in range(1, number + 1):
        reads[:] = 0, failing
        with pytest.raises(StorageError, match=r"cannot read .*a\.pdf: Input/output error"):
            read(uri)
    assert read(uri) == wanted


def in_this_process(path: Path, settings: PdfSettings) -> Generator[child.Frame, None, None]:
    yield from child._frames(str(path), {**settings.model_dump(mode="json"), "pages_read": 0})


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"none\.pdf"):
        read(tmp_path / "none.pdf")


def test_too_many_pages_and_too_many_bytes_are_errors_of_the_document(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", [text(50, 700, f"Page {number}.") for number in range(4)])
    first, *rows = read(path, max_pages=2)
    assert first["materialize_error"] == "document_too_large: 4 pages, over max_pages 2"
    assert [row["text_content"] for row in rows] == ["Page 0.", "Page 1."]
    pages = [shown("Im", 50, 400, 64, 64)] * 3
    large = write_pdf(tmp_path / "b.pdf", pages, [("Im", jpeg_image(content := jpeg(1)))])
    first, *rows = read(large, limits=TarLimits(max_sample_bytes=2 * len(content)))
    assert first["materialize_error"] == "sample_too_large: page 3: raise max_sample_bytes"
    assert len(rows) == 2
    (_, image) = read(
        write_pdf(tmp_path / "c.pdf", pages[:1], [("Im", jpeg_image(content))]), limits=TarLimits(max_member_bytes=99)
    )
    assert image["materialize_error"] == "sample_too_large: an image of page 1: raise max_member_bytes"


def test_a_parser_that_takes_too_long_or_too_much_memory_is_ended(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", [text(50, 700, *["words " * 15] * 50)] * 400)
    with pytest.raises(ShardError, match=r"a\.pdf cannot be read as PDF: its parser took more than .*_seconds 1e-06"):
        read(path, max_seconds=1e-6)
    first, *rows = read(path, max_seconds=0.6)
    if first["materialize_error"] is not None:  # a fast machine may be done by then
        assert first["materialize_error"].endswith("the parser took more than reading.pdf.max_seconds 0.6")
        assert rows[-1]["page"] < 400


def test_a_decompression_bomb_is_an_error_of_its_image(tmp_path: Path) -> None:
    bomb = flat_image(np.zeros((1, 1), np.uint8)).replace(b"/Width 1 /Height 1", b"/Width 60000 /Height 60000")
    page = text(50, 700, "Text.") + shown("Im", 50, 400, 64, 64)
    rows = read(write_pdf(tmp_path / "a.pdf", [page], [("Im", bomb)]))
    assert [row["modality"] for row in rows] == ["metadata", "text", "image"]
    assert rows[2]["materialize_error"] == "image_too_large: 60000 × 60000 pixels in a PDF file"
