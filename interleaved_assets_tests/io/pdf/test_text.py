from pathlib import Path

import numpy as np
import pypdfium2
import pytest

from interleaved_assets.io.pdf.lines import Box, Line
from interleaved_assets.io.pdf.text import _join_surrogates, _text, directions, page_characters, page_runs
from interleaved_assets_tests.io.pdf.test_reader import read
from interleaved_assets_tests.io.pdfs import text, with_font, write_pdf


def runs(path: str) -> list[Line]:
    page = pypdfium2.PdfDocument(path)[0]
    text_page = page.get_textpage()
    characters = page_characters(text_page, Box(*page.get_bbox()))
    return [run for quarter in directions(characters) for run in page_runs(text_page, characters, quarter)]


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


def in_order(letters: str, *lefts: float) -> str:
    """The text of letters at these places, in the order that PDFium gives."""
    boxes = np.array([(left, 0, left + 5, 10) for left in lefts], float)
    return _text(np.array([ord(letter) for letter in letters], np.uint32), boxes)


def test_words_from_right_to_left_are_read_so_whether_turned_around_or_as_drawn() -> None:
    # alef, beh, teh: from the right; drawn from the left; a ligature of two letters turned around, and one as drawn
    assert in_order("\u0627\u0628\u062a", 30, 20, 10) == "\u0627\u0628\u062a"
    assert in_order("\u062a\u0628\u0627", 10, 20, 30) == "\u0627\u0628\u062a"
    assert in_order("\u0627\u0644\u0628", 20, 20, 10) == "\u0644\u0627\u0628"
    assert in_order("\u0628\u0644\u0627", 10, 20, 20) == "\u0644\u0627\u0628"
    assert in_order("\u062a\u0628 ab", 10, 20, 25, 30, 40) == "\u0628\u062a ab"


def test_words_of_a_phrase_are_read_from_the_right() -> None:
    # two words and a full stop as drawn from the left, then the same turned around
    assert in_order(".\u062a\u0628 \u0627\u0644", 0, 10, 20, 30, 40, 50) == "\u0644\u0627 \u0628\u062a."
    assert in_order("\u0644\u0627 \u0628\u062a.", 50, 40, 30, 20, 10, 0) == "\u0644\u0627 \u0628\u062a."
    # in a text from left to right
    assert in_order("see \u0628 \u0627 here", *range(0, 120, 10)) == "see \u0627 \u0628 here"
    # what is written from the left stays so
    assert in_order("a b \u062a\u0628 \u0627\u0644", *range(0, 90, 10)) == "\u0644\u0627 \u0628\u062a a b"


def test_arabic_numbers_are_read_from_the_left() -> None:
    assert in_order("\u06f4\u06f1", 10, 20) == "\u06f4\u06f1"
    assert in_order("\u06f1\u06f4", 20, 10) == "\u06f4\u06f1"
    assert in_order("\u0661\u0662/\u0663", 10, 20, 30, 40) == "\u0661\u0662/\u0663"
    assert in_order("\u0644\u0627 \u0661\u0662", 50, 40, 30, 10, 20) == "\u0644\u0627 \u0661\u0662"
    # a comma that belongs to the number's right side stands behind it
    assert (
        in_order("\u0644\u0627 \u060c\u0661 \u0663", 50, 40, 35, 20, 30, 15, 10) == "\u0644\u0627 \u0661\u060c \u0663"
    )


def test_spaces_between_all_characters_of_a_line_of_chinese_or_japanese_are_no_words() -> None:
    assert in_order("\u51fa \u529b \u3059 \u308b", *range(0, 70, 10)) == "\u51fa\u529b\u3059\u308b"
    assert in_order("\u51fa\u529b \u3059\u308b", *range(0, 50, 10)) == "\u51fa\u529b \u3059\u308b"
    assert in_order("a b c d e", *range(0, 90, 10)) == "a b c d e"


def test_surrogates_are_joined_and_halves_replaced() -> None:
    codes = np.array([0x61, 0xD83D, 0xDC0D, 0xDC0D, 0x62, 0xD83D], np.uint32)
    _join_surrogates(codes)
    assert codes.tolist() == [0x61, 0x1F40D, 0, 0xFFFD, 0x62, 0xFFFD]


def turned(x: float, y: float, matrix: str, *lines: str) -> bytes:
    return f"q {matrix} {x} {y} cm ".encode() + text(0, 0, *lines) + b" Q\n"


UPWARDS, DOWNWARDS = "0 1 -1 0", "0 -1 1 0"


def test_a_stamp_at_the_margin_and_labels_of_axes_are_texts_beside_the_page(tmp_path: Path) -> None:
    lines = [f"Line {number} of the page goes on." for number in range(1, 9)]
    page = turned(40, 600, UPWARDS, "stamp of the archive, 1 May") + turned(560, 700, DOWNWARDS, "height in m")
    found = read(write_pdf(tmp_path / "a.pdf", [page + text(60, 700, *lines)]))[1:]
    assert [row["text_content"] for row in found] == [" ".join(lines), "stamp of the archive, 1 May", "height in m"]


@pytest.mark.parametrize("rotate", [0, 90, 180, 270])
@pytest.mark.parametrize(("matrix", "x", "y"), [("1 0 0 1", 50, 700), (UPWARDS, 50, 100), (DOWNWARDS, 500, 700)])
def test_a_page_is_read_as_most_of_its_text_runs_whatever_its_rotation(
    tmp_path: Path, matrix: str, x: float, y: float, rotate: int
) -> None:
    path = tmp_path / "a.pdf"
    write_pdf(path, [turned(x, y, matrix, "A table is turned", "with its page.")])
    path.write_bytes(path.read_bytes().replace(b"/MediaBox", b"/Rotate %d /MediaBox" % rotate))
    assert [row["text_content"] for row in read(path)[1:]] == ["A table is turned with its page."]


def shown(x: float, y: float, size: int, matrix: str, line: str) -> bytes:
    return f"BT /F1 {size} Tf {matrix} {x} {y} Tm ({line}) Tj ET\n".encode()


@pytest.mark.parametrize(
    ("size", "matrix", "right"), [(-12, "-1 0 0 -1", 0), (12, "-1 0 0 1", 200)], ids=["negative size", "mirrored"]
)
def test_a_page_is_upside_down_only_if_its_letters_are(tmp_path: Path, size: int, matrix: str, right: float) -> None:
    page = b"".join(shown(100 + right, 700 - 15 * at, size, matrix, f"Line {at}.") for at in range(3))
    assert [row["text_content"] for row in read(write_pdf(tmp_path / "a.pdf", [page]))[1:]] == [
        "Line 0. Line 1. Line 2."
    ]


def test_letters_that_a_negative_size_turns_are_read_on_a_page_that_is_turned_too(tmp_path: Path) -> None:
    page = b"".join(shown(500, 100 + 15 * at, -12, "1 0 0 1", f"Line {at}.") for at in range(3))
    assert [row["text_content"] for row in read(write_pdf(tmp_path / "a.pdf", [page]))[1:]] == [
        "Line 0. Line 1. Line 2."
    ]


def test_a_mirrored_sign_stays_in_its_line(tmp_path: Path) -> None:
    """So does TeX write the arrows for which it has only the other direction."""
    page = (
        text(100, 700, "maps")
        + shown(140, 700, 10, "-1 0 0 1", "x")
        + text(145, 700, "from")
        + text(100, 600, "Below.")
    )
    assert [row["text_content"] for row in read(write_pdf(tmp_path / "a.pdf", [page]))[1:]] == ["maps x from", "Below."]


def test_words_that_are_only_set_apart_are_two_and_a_spaced_word_is_one(tmp_path: Path) -> None:
    # as groff and Ghostscript write justified lines; PDFium takes all space within one string for that between letters
    steps = b"BT /F1 10 Tf 50 700 Td (overvie) Tj 5.97 Tc [(wm) 597] TJ 0 Tc (anual) Tj ET\n"
    spaced = b"BT /F1 12 Tf 4 Tc 50 600 Td (SPACED) Tj 0 Tc ET\n"
    within = b"BT /F1 12 Tf 50 500 Td (Words, then ) Tj 4 Tc (SPACED) Tj 0 Tc ( ones.) Tj ET\n"
    found = read(write_pdf(tmp_path / "a.pdf", [steps + spaced + within]))[1:]
    assert [row["text_content"] for row in found] == ["overview manual", "SPACED", "Words, then SPACED ones."]
