"""PDF files with odd objects and damaged bytes: rows, errors of rows, or a refusal."""

import io
import random
import zlib
from pathlib import Path
from typing import Final

import pyarrow as pa
from PIL import Image

from benchmarks.fuzz.child import WrongRead
from benchmarks.fuzz.mutate import perhaps
from interleaved_assets.demo.pdf_report import jpeg_object, pdf_bytes, shown, stream, text
from interleaved_assets.io.pdf.reader import read_pdf
from interleaved_assets.io.pdf.settings import PdfSettings
from interleaved_assets.io.rows.policy import apply_error_policy
from interleaved_assets.io.storage.limits import TarLimits
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.model import InterleavedBatch
from interleaved_assets.model.errors import InterleavedError, error_code

_ODD: Final = (
    b"/F1 0 Tf", b"/None 12 Tf", b"q " * 5000, b"BT " * 500, b"/Im0 Do", b"1e30 0 0 1e30 0 0 cm", b"(\\377\\376) Tj",
    b"[(a) -99999999 (b)] TJ", b"BI /W 9 /H 9 /BPC 8 /CS /G ID 123 EI", b"<FFFE> Tj", b"0 0 0 0 0 0 cm", b"\0" * 50,
    b"/Im0 Do " * 300, b"99999999 Tz", b"(" * 300, b"<< /A << /B", b"-1 -1 Td", b"3 Tr",
    b"50 100 m 300 100 l 50 140 m 300 140 l 50 180 m 300 180 l S",
    b"50 100 m 50 180 l 90 100 m 90 180 l 300 100 m 300 180 l S",
    b"50 50 90 40 re S 140 50 90 40 re S 50 90 90 40 re S 140 90 90 40 re S", b"1e9 1e9 m -1e9 1e9 l S " * 900,
    b"0 1 -1 0 300 300 cm", b"(\\330\\247\\331\\204) Tj", b"0 0 m 9 9 l " * 500 + b"S", b"1 0 0 1 99999 0 Tm",
)  # fmt: skip
_SPACES: Final = ("/DeviceGray", "/DeviceRGB", "/DeviceCMYK", "[/Indexed /DeviceRGB 1 <000000FFFFFF>]", "/Pattern")
_FILTERS: Final = (
    "/FlateDecode",
    "[/FlateDecode /FlateDecode]",
    "/JPXDecode",
    "/JBIG2Decode",
    "/CCITTFaxDecode",
    "[/FlateDecode /DCTDecode]",
    "[/FlateDecode /JPXDecode]",
)
_SIDES: Final = (0, 1, 40, 5000, 60_000, 2**31)


def check_pdf(dice: random.Random, folder: Path) -> str:
    """Read a PDF file with odd contents or damage in every way that the settings offer."""
    objects = [(f"Im{at}", _image(dice)) for at in range(dice.choice((1, 1, 3)))]
    pages = []
    for number in range(dice.choice((1, 3, 20))):
        content = text(50, 700, f"page {number}", "goes on-", "ward") + shown("Im0", 50, 300, 200, 150)
        odd = b" ".join(dice.choices(_ODD, k=dice.choice((0, 0, 1, 5))))
        pages.append(perhaps(dice, odd + b"\n" + content if dice.random() < 0.5 else content + odd, 0.3))
    content = pdf_bytes(pages, objects, title=dice.choice(("title", "", "x" * 3000, "\\377\\376\\330")))
    content = _changed(dice, content)
    path = folder / "case.pdf"
    path.write_bytes(perhaps(dice, content, 0.6))
    settings = PdfSettings(page_images=dice.random() < 0.5, max_seconds=8, max_memory=2**30, page_dpi=72)
    options = ReadOptions(limits=TarLimits(max_sample_bytes=2**26), sections={"pdf": settings})
    try:
        table = pa.concat_tables(read_pdf(str(path), options))
    except InterleavedError as error:
        if "case.pdf" not in str(error):
            raise WrongRead(f"the message does not name the file: {error}") from error
        raise
    table.validate(full=True)
    InterleavedBatch(table, (str(path),)).validate()
    apply_error_policy(table, "warn", shard="case.pdf", stage="read")
    errors = {error_code(error) for error in table["materialize_error"].drop_null().to_pylist()}
    return f"row error {', '.join(sorted(errors))}" if errors else "read"


def _image(dice: random.Random) -> bytes:
    if dice.random() < 0.5:
        buffer = io.BytesIO()
        mode = dice.choice(("RGB", "RGB", "L", "CMYK"))
        picture = Image.frombytes("RGB", (40, 30), dice.randbytes(3600)).convert(mode)
        is_jpx = mode == "RGB" and dice.random() < 0.2
        picture.save(buffer, "JPEG2000" if is_jpx else "JPEG")
        mask = dice.choice(("", "", "/SMask 5 0 R", "/SMask 99 0 R", "/Mask [0 9 0 9 0 9]", "/Decode [1 0 1 0 1 0]"))
        made = jpeg_object(perhaps(dice, buffer.getvalue(), 0.3), 40, 30, mask)
        space = {"L": b"/DeviceGray", "CMYK": b"/DeviceCMYK"}.get(mode, b"/DeviceRGB")
        made = made.replace(b"/DeviceRGB", space, 1)
        return made.replace(b"/DCTDecode", b"/JPXDecode", 1) if is_jpx else made
    space = dice.choice(
        ("/DeviceGray", "/DeviceRGB", "/DeviceCMYK", "[/Indexed /DeviceRGB 1 <000000FFFFFF>]", "/Pattern")
    )
    sides = (dice.choice(_SIDES), dice.choice(_SIDES)) if dice.random() < 0.4 else (40, 30)
    fields = (
        f"/Type /XObject /Subtype /Image /Width {sides[0]} /Height {sides[1]} /ColorSpace {space} "
        f"/BitsPerComponent {dice.choice((1, 8, 8, 16, 99))} /Filter {dice.choice(_FILTERS)}"
    )
    return stream(fields, perhaps(dice, zlib.compress(bytes(dice.choice((3600, 4800, 2**20, 2**26)))), 0.2))


def _changed(dice: random.Random, content: bytes) -> bytes:
    """Return ``content`` with a loop of pages, a page of another size, or a reference to itself; often as it is."""
    old, new = dice.choice(
        (
            (b"/Kids [", b"/Kids [2 0 R "),
            (b"/MediaBox [0 0 600 800]", b"/MediaBox [0 0 9e9 9e9]"),
            (b"/MediaBox [0 0 600 800]", b"/MediaBox [0 0 0 0]"),
            (b"/Parent 2 0 R", b"/Parent 6 0 R"),
            (b"/Count ", b"/Count 99999999"),
            (b"/Root 1 0 R", b"/Root 1 0 R /Encrypt 4 0 R"),
            (b"/F1 3 0 R", b"/F1 1 0 R"),
            (b"%PDF-1.7", b"%PDF-9.9"),
            (b"/MediaBox", b"/Rotate 90 /MediaBox"),
            (b"/MediaBox", b"/Rotate 45 /CropBox [9 9 1 1] /MediaBox"),
            (b"/Type /Catalog", b"/Type /Catalog /AcroForm << /Fields [5 0 R 2 0 R] /NeedAppearances true >>"),
            (b"/Type /Page /Parent", b"/Type /Page /Annots [5 0 R 6 0 R 7 0 R] /Parent"),
        )
    )
    return content.replace(old, new) if dice.random() < 0.3 else perhaps(dice, content, 0.2)
