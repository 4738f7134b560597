from pathlib import Path

from interleaved_assets_tests.io.pdf.test_reader import read
from interleaved_assets_tests.io.pdfs import text, write_pdf


def cells(*texts: tuple[float, float, str]) -> bytes:
    return b"".join(text(x, y, content) for x, y, content in texts)


def rules(*lines: tuple[float, float, float, float]) -> bytes:
    return b"".join(f"{x} {y} m {across} {up} l S\n".encode() for x, y, across, up in lines)


GRID = rules(*((50, y, 350, y) for y in (600, 580, 560, 540)), *((x, 540, x, 600) for x in (50, 150, 350)))
WORDS = cells(
    (54, 585, "Name"), (154, 585, "City"), (54, 565, "Ada"), (154, 565, "Bern"), (54, 545, "Bo"), (154, 545, "Rom")
)
TABLE = "| Name | City |\n| --- | --- |\n| Ada | Bern |\n| Bo | Rom |"


def tables(tmp_path: Path, page: bytes) -> list[tuple[str, str]]:
    rows = read(write_pdf(tmp_path / "a.pdf", [page]))
    return [(row["modality"], row["text_content"]) for row in rows[1:]]


def test_a_table_with_lines_is_a_row_of_its_own_between_the_texts(tmp_path: Path) -> None:
    page = text(50, 640, "Before.") + GRID + WORDS + text(50, 500, "After.")
    assert tables(tmp_path, page) == [("text", "Before."), ("table", TABLE), ("text", "After.")]
    assert read(tmp_path / "a.pdf")[2]["content_type"] == "text/markdown"


def test_a_table_whose_outer_sides_are_not_drawn_is_whole(tmp_path: Path) -> None:
    level = [(50, y, 350, y) for y in (600, 580, 560, 540)]
    assert tables(tmp_path, rules(*level, (150, 540, 150, 600)) + WORDS) == [("table", TABLE)]
    # and one whose last row has no line below it
    assert tables(tmp_path, rules(*level[:3], (150, 540, 150, 600)) + WORDS) == [("table", TABLE)]


def test_columns_of_text_with_lines_between_and_above_them_are_no_table(tmp_path: Path) -> None:
    words = cells(*((x, y, "Words of a column.") for x in (54, 310) for y in range(740, 110, -14)))
    across = rules(*((50, y, 550, y) for y in (760, 430, 100)), (300, 100, 300, 760))
    upright = rules((50, 760, 550, 760), (50, 430, 550, 430), *((x, 100, x, 760) for x in (180, 300, 420)))
    for lines in (across, upright):
        assert {kind for kind, _ in tables(tmp_path, lines + words)} == {"text"}


def test_lines_drawn_as_boxes_or_piece_by_piece_are_the_same_table(tmp_path: Path) -> None:
    boxes = b"".join(
        f"{x} {y} {width} 20 re S\n".encode() for y in (580, 560, 540) for x, width in ((50, 100), (150, 200))
    )
    assert tables(tmp_path, boxes + WORDS) == [("table", TABLE)]
    thin = b"".join(f"50 {y} 300 0.8 re f\n".encode() for y in (600, 580, 560, 540))
    thin += b"".join(f"{x} 540 0.8 60 re f\n".encode() for x in (50, 150, 350))
    assert tables(tmp_path, thin + WORDS) == [("table", TABLE)]


def test_a_cell_over_two_columns_stands_in_the_first(tmp_path: Path) -> None:
    grid = rules(
        *((50, y, 350, y) for y in (600, 580, 560, 540)), (50, 540, 50, 600), (350, 540, 350, 600), (150, 540, 150, 580)
    )
    page = grid + cells((170, 585, "Both"), *((x, y, f"{x}") for x in (54, 154) for y in (565, 545)))
    assert tables(tmp_path, page) == [("table", "| Both |  |\n| --- | --- |\n| 54 | 154 |\n| 54 | 154 |")]


def test_texts_that_touch_are_parted_by_the_line_between_them(tmp_path: Path) -> None:
    page = GRID + cells(
        (54, 585, "Name"), (154, 585, "City"), (87, 565, "Long name"), (153, 565, "Bern"), (54, 545, "Bo")
    )
    assert tables(tmp_path, page)[0][1].splitlines()[2] == "| Long name | Bern |"


def test_a_word_that_is_cut_in_a_cell_is_whole(tmp_path: Path) -> None:
    grid = rules(*((50, y, 350, y) for y in (600, 580, 550)), *((x, 550, x, 600) for x in (50, 150, 350)))
    page = grid + cells(
        (54, 585, "Name"), (154, 585, "City"), (54, 567, "Ada Love-"), (54, 554, "lace"), (154, 560, "X-1")
    )
    assert tables(tmp_path, page)[0][1].splitlines()[2] == "| Ada Lovelace | X-1 |"


def test_rows_without_lines_between_them_are_rows(tmp_path: Path) -> None:
    grid = rules(*((50, y, 350, y) for y in (600, 580, 510)), *((x, 510, x, 600) for x in (50, 150, 250, 350)))
    head = cells((54, 585, "Year"), (154, 585, "In"), (254, 585, "Out"))
    sums = [(54 + 100 * column, 564 - 14 * row, f"{column}{row}") for row in range(4) for column in range(3)]
    rows = ["| Year | In | Out |", "| --- | --- | --- |", *(f"| 0{row} | 1{row} | 2{row} |" for row in range(4))]
    assert tables(tmp_path, grid + head + cells(*sums)) == [("table", "\n".join(rows))]
    # lines of cells that are no rows
    assert tables(tmp_path, grid + head + cells(*sums[:-1]))[0][1].splitlines()[2].startswith("| 00 01 02 03 |")
    assert tables(tmp_path, grid + head + cells(*sums[::3]))[0][1].splitlines()[2] == "| 00 01 02 03 |  |  |"


def test_cells_of_prose_with_as_many_lines_stay_whole(tmp_path: Path) -> None:
    grid = rules(*((50, y, 350, y) for y in (600, 580, 510)), *((x, 510, x, 600) for x in (50, 200, 350)))
    head = cells((54, 585, "For it"), (204, 585, "Against it"))
    lines = (
        "All lines of this text are",
        "filled, so that no word has",
        "room above, until it ends,",
        "here, five lines in, and",
        "is done.",
    )
    prose = [(left, 570 - 14 * row, text) for left in (54, 204) for row, text in enumerate(lines)]
    assert (
        tables(tmp_path, grid + head + cells(*prose))[0][1].splitlines()[2]
        == f"| {' '.join(lines)} | {' '.join(lines)} |"
    )
    # beside numbers, lines are rows
    sums = [(204, 570 - 14 * row, f"1{row}") for row in range(5)]
    found = tables(tmp_path, grid + head + cells(*prose[:5], *sums))[0][1].splitlines()
    assert found[2:] == [f"| {text} | 1{row} |" for row, text in enumerate(lines)]


def test_axes_and_empty_grids_are_no_tables(tmp_path: Path) -> None:
    axes = rules(
        (50, 540, 350, 540), (50, 540, 50, 600), (50, 600, 60, 600), (350, 535, 350, 545), (150, 535, 150, 545)
    )
    assert {kind for kind, _ in tables(tmp_path, axes + WORDS)} == {"text"}
    assert tables(tmp_path, GRID + cells((54, 585, "Name"))) == [("text", "Name")]


def test_a_turned_page_is_read_as_it_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    # two lines, the first of which is on the right of the page as it is stored
    page = b"BT /F1 12 Tf 0 1 -1 0 300 100 Tm (second line) Tj ET BT /F1 12 Tf 0 1 -1 0 200 100 Tm (first line) Tj ET"
    write_pdf(path, [page])
    path.write_bytes(path.read_bytes().replace(b"/MediaBox", b"/Rotate 90 /MediaBox"))
    assert [row["text_content"] for row in read(path)[1:]] == ["first line", "second line"]


def test_a_cell_over_two_rows_stands_in_the_first(tmp_path: Path) -> None:
    grid = rules(*((x, 540, x, 600) for x in (50, 150, 350)), *((50, y, 350, y) for y in (600, 580, 540)))
    page = grid + rules((150, 560, 350, 560)) + cells((54, 585, "Name"), (154, 585, "City"), (54, 545, "Ada"))
    page += cells((154, 565, "Bern"), (154, 545, "Rom"))
    assert tables(tmp_path, page) == [("table", "| Name | City |\n| --- | --- |\n| Ada | Bern |\n|  | Rom |")]


def test_text_beside_a_table_is_read_before_and_after_it(tmp_path: Path) -> None:
    page = GRID + WORDS + text(10, 570, "Left.") + text(400, 570, "Right.")
    assert tables(tmp_path, page) == [("text", "Left."), ("table", TABLE), ("text", "Right.")]
    # a column of prose beside it is read to its end
    column = cells(*((400, y, "Words beside the table.") for y in range(640, 480, -14)))
    assert [kind for kind, _ in tables(tmp_path, GRID + WORDS + column)] == ["table", "text"]
