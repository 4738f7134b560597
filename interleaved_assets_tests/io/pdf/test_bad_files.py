"""Files that are made to stop a reader: each gives rows, row errors, or a refusal that says why."""

import os
import re
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from interleaved_assets.demo.pdf_report import pdf_bytes, stream
from interleaved_assets.io.pdf.reader import read_pdfs
from interleaved_assets.io.pdf.settings import PdfSettings
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.model.errors import ShardError
from interleaved_assets_tests.io.pdf.test_reader import read
from interleaved_assets_tests.io.pdfs import text, write_pdf

LEAST_MEMORY = 256 * 2**20
FORM = "/Type /XObject /Subtype /Form /BBox [0 0 600 800] /Resources << /XObject << /Next {} 0 R >> >>"


@pytest.mark.parametrize("handler", ["Standard", "Adobe.PubSec"])
def test_an_encrypted_file_is_refused(tmp_path: Path, handler: str) -> None:
    encryption = f"<< /Filter /{handler} /V 1 /R 2 /Length 40 /P -4 /O <{'ab' * 32}> /U <{'cd' * 32}> >>"
    content = pdf_bytes([text(50, 700, "Secret.")], [("Encryption", encryption.encode())])
    path = tmp_path / "a.pdf"
    path.write_bytes(content.replace(b"/Root 1 0 R", b"/Root 1 0 R /Encrypt 5 0 R /ID [<00> <00>]"))
    with pytest.raises(ShardError, match=r"a\.pdf cannot be read as PDF: it is encrypted\. Remove its password"):
        read(path)


def test_a_tree_of_pages_that_holds_itself_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf_bytes([text(50, 700, "Text.")]).replace(b"/Kids [", b"/Kids [2 0 R "))
    assert [row["text_content"] for row in read(path)[1:]] == ["Text."]


def test_forms_that_show_one_another_many_times_end_at_a_limit(tmp_path: Path) -> None:
    forms = [(f"F{at}", stream(FORM.format(6 + at), b"/Next Do " * 50)) for at in range(6)]
    row = read(write_pdf(tmp_path / "a.pdf", [b"/F0 Do"], forms), max_seconds=0.5)[-1]
    by_memory = re.fullmatch(
        r"unreadable_page: page 1: the parser .*\(reading.pdf.max_memory is .*", row["materialize_error"]
    )
    by_time = r"unreadable_page: page 1 and those after it: the parser took more than reading.pdf.max_seconds 0.5"
    assert by_memory or row["materialize_error"] == by_time


@pytest.mark.system
def test_a_file_larger_than_the_memory_of_its_parser_fails_alone(tmp_path: Path) -> None:
    small, large = tmp_path / "a.pdf", tmp_path / "b.pdf"
    write_pdf(small, [text(50, 700, "Small.")])
    write_pdf(large, [text(50, 700, "Large.")])
    os.truncate(large, 2 * LEAST_MEMORY)
    tables = read_pdfs([str(small), str(large)], ReadOptions(sections={"pdf": PdfSettings(max_memory=LEAST_MEMORY)}))
    _, row, failed = pa.concat_tables(tables).to_pylist()
    assert row["text_content"] == "Small."
    assert "(reading.pdf.max_memory is " in failed["materialize_error"]


def with_bombs(path: Path, pages: int, bombs: range) -> str:
    """A file in which these pages, from 0, unpack to more than the memory that LEAST_MEMORY allows."""
    packed = zlib.compress(b" " * LEAST_MEMORY, 1)
    content = pdf_bytes(
        [text(50, 700, f"Page {page}.") for page in range(pages)], [("Bomb", stream("/Filter /FlateDecode", packed))]
    )
    for page in bombs:
        content = content.replace(b"/Contents %d 0 R" % (7 + 2 * page), b"/Contents 5 0 R")
    path.write_bytes(content)
    return str(path)


def test_pages_after_one_that_unpacks_to_more_than_the_memory_are_read(tmp_path: Path) -> None:
    document, *rows = read(with_bombs(tmp_path / "a.pdf", 4, range(1, 2)), max_memory=LEAST_MEMORY)
    assert document["materialize_error"] is None
    assert [row["text_content"] for row in rows] == ["Page 0.", None, "Page 2.", "Page 3."]
    assert [row["page"] for row in rows] == [1, 2, 3, 4]
    assert rows[1]["materialize_error"].startswith("unreadable_page: page 2: the parser was ended by SIG")


@pytest.mark.system
def test_a_file_ends_ten_parsers_at_most(tmp_path: Path) -> None:
    document, *rows = read(with_bombs(tmp_path / "a.pdf", 14, range(1, 13)), max_memory=LEAST_MEMORY)
    assert [row["page"] for row in rows] == list(range(1, 12))
    assert document["materialize_error"].startswith("unreadable_page: page 12 and those after it: the parser was ")


def test_a_page_of_kilometres_is_not_drawn(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf_bytes([b""]).replace(b"[0 0 600 800]", b"[0 0 9000000 9000000]"))
    (row,) = read(path, page_images=True)[1:]
    assert row["materialize_error"] == "image_too_large: a page of 9000000 × 9000000 points at 150 dpi"
