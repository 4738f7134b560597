from pathlib import Path

import pypdfium2

from interleaved_assets.io.pdf.layout import Line
from interleaved_assets.io.pdf.objects import page_matrix
from interleaved_assets.io.pdf.text import page_runs
from interleaved_assets_tests.io.pdfs import text, with_font, write_pdf


def runs(path: str) -> list[Line]:
    page = pypdfium2.PdfDocument(path)[0]
    return page_runs(page.get_textpage(), page_matrix(page))


def test_boxes_stay_with_their_text_after_characters_without_meaning(tmp_path: Path) -> None:
    page = text(50, 700, "\x01" * 40 + "Above") + text(50, 300, "Below")
    found = {run.text: run.box for run in runs(write_pdf(tmp_path / "a.pdf", [page]))}
    assert found["Below"].bottom < 300 < found["Below"].top
    assert found["Above"].bottom < 700 < found["Above"].top


def test_characters_beyond_the_basic_plane_are_whole(tmp_path: Path) -> None:
    path = with_font(tmp_path / "a.pdf", [text(50, 700, "aab")], {"a": "\U0001f40d", "b": "x"})
    assert [run.text for run in runs(path)] == ["\U0001f40d\U0001f40dx"]


def test_presentation_forms_become_letters_and_ligatures_keep_their_order(tmp_path: Path) -> None:
    path = with_font(tmp_path / "a.pdf", [text(50, 700, "ab")], {"a": "\ufb01", "b": "n"})
    assert [run.text for run in runs(path)] == ["fin"]
    # drawn from left to right: the last letter first; c is a ligature of two letters
    arabic = with_font(tmp_path / "b.pdf", [text(50, 700, "abc")], {"a": "\ufeea", "b": "\ufe92", "c": "\u0644\u0627"})
    assert [run.text for run in runs(arabic)] == ["\u0644\u0627\u0628\u0647"]
