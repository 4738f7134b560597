from interleaved_assets.io.pdf.layout import places, reading_order
from interleaved_assets.io.pdf.lines import Box, Line, Paragraph, paragraphs


def line(text: str, top: float, left: float = 50, width: float = 200, height: float = 10) -> Line:
    return Line(text, Box(left, top - height, left + width, top))


def test_an_image_stands_between_the_paragraphs_of_its_column() -> None:
    found = [
        Paragraph("a", Box(50, 600, 250, 700)),
        Paragraph("b", Box(50, 100, 250, 300)),
        Paragraph("c", Box(320, 100, 520, 700)),
    ]
    above, between, below = Box(50, 710, 250, 780), Box(60, 400, 200, 500), Box(60, 10, 200, 90)
    beside, nowhere = Box(330, 710, 500, 780), Box(560, 10, 590, 20)
    assert places(found, [above, between, below, beside, nowhere]) == [0, 1, 2, 2, 3]
    assert places([], [above]) == [0]


def column(name: str, left: float, lines: int, top: float = 700, width: float = 200) -> list[Line]:
    return [line(f"{name}{at}", top - 12 * at, left=left, width=width) for at in range(lines)]


def order(*runs: Line) -> list[str]:
    return [found.text for found in reading_order(runs)]


def by_rows(*runs: Line) -> list[Line]:
    return sorted(runs, key=lambda run: (-run.box.top, run.box.left))


def test_columns_are_read_to_their_end_whatever_the_order_in_the_file() -> None:
    title, foot = line("title", 740, left=100, width=380), line("foot", 500, left=280, width=40)
    left, right = column("l", 50, 5), column("r", 320, 5)
    expected = ["title", *(run.text for run in left), *(run.text for run in right), "foot"]
    assert order(*by_rows(title, *left, *right, foot)) == expected
    assert order(foot, *right, *left, title) == expected


def test_a_title_that_begins_beside_a_strip_does_not_part_the_columns() -> None:
    # the first row of the columns is short, and the title leaves a strip free beside it
    title, left, right = line("title", 740, left=150, width=300), column("l", 50, 5), column("r", 320, 5)
    left[0] = line("l0", 700, left=50, width=80)
    assert order(*by_rows(title, *left, *right))[:4] == ["title", "l0", "l1", "l2"]


def test_labels_and_fields_are_read_row_by_row() -> None:
    rows = [
        line(f"{name}{at}", 700 - 24 * at, left=left, width=100)
        for at in range(4)
        for left, name in ((50, "a"), (320, "b"))
    ]
    assert order(*rows) == [f"a{at} b{at}" for at in range(4)]


def test_rows_that_leave_two_strips_free_are_a_table() -> None:
    rows = [
        line(f"{name}{at}", 700 - 14 * at, left=left, width=60)
        for at in range(4)
        for left, name in ((50, "a"), (150, "b"), (250, "c|"))
        if (at, name) != (3, "a")
    ]
    (table,) = reading_order(rows)
    assert table.is_table
    assert table.text.splitlines() == [
        "| a0 | b0 | c\\|0 |",
        "| --- | --- | --- |",
        "| a1 | b1 | c\\|1 |",
        "| a2 | b2 b3 | c\\|2 c\\|3 |",
    ]
    assert [paragraph.is_table for paragraph in paragraphs([table, line("after", 640)])] == [True, False]


def test_what_stands_above_or_below_columns_at_one_side_is_not_a_part_of_them() -> None:
    left, right = column("l", 50, 5), column("r", 320, 5)
    table = [
        line(f"{name}{at}", 760 - 14 * at, left=place, width=40)
        for at in range(3)
        for place, name in ((50, "a"), (120, "b"), (190, "c"))
    ]
    below = line("below", 630, left=50)
    in_file = order(*table, *left, *right, below)
    assert in_file[0].startswith("| a0 | b0 | c0 |")
    assert in_file[1:] == [*(run.text for run in (*left, *right)), "below"]
    # where the file says nothing, the left column goes on
    assert order(*by_rows(*left, *right, below)) == [run.text for run in (*left, below, *right)]


def test_a_wide_space_across_the_page_parts_the_columns_above_and_below() -> None:
    parts = [(column(f"{at}l", 50, 4, top), column(f"{at}r", 320, 4, top)) for at, top in enumerate((700, 500))]
    runs = [run for left, right in parts for run in (*left, *right)]
    assert order(*by_rows(*runs)) == [run.text for run in runs]


def test_the_space_after_a_sentence_parts_no_columns() -> None:
    left, right = column("l", 50, 5), column("r", 320, 5)
    right[0:1] = [line("r0", 700, left=320, width=90), line("r0b", 700, left=419, width=100)]
    left[0] = line("l0", 700, left=50, width=80)
    left.pop(1)  # a gap below a heading
    title = line("title", 740, left=100, width=380)
    expected = ["title", "l0", "l2", "l3", "l4", "r0 r0b", "r1", "r2", "r3", "r4"]
    assert order(*by_rows(title, *left, *right)) == expected


def test_a_column_that_no_row_of_the_columns_fills_is_left_out() -> None:
    left, right = column("l", 50, 5), column("r", 320, 5)
    third = line("third", 636, left=560, width=20)
    assert {*order(third, *left, *right)} == {run.text for run in (third, *left, *right)}


def test_a_page_number_between_columns_is_no_column() -> None:
    left, right, number = column("l", 50, 5), column("r", 320, 5), line("1", 640, left=280, width=6)
    top = number._replace(box=Box(280, 706, 286, 716))
    expected = [run.text for run in (*left, *right)]
    assert order(number, *left, *right) == [*expected, "1"]
    assert order(top, *by_rows(*left, *right)) == ["1", *expected]


def test_columns_of_items_are_read_to_their_end() -> None:
    left, right = (
        [
            line(text, 700 - 30 * at, left=place + shift, width=width)
            for at, item in enumerate((f"{name} one", f"{name} two", f"{name} three"))
            for text, shift, width in (("\uf0b7", 0, 5), (item, 25, 150))
        ]
        for place, name in ((50, "left"), (320, "right"))
    )
    expected = [f"\uf0b7 {name} {number}" for name in ("left", "right") for number in ("one", "two", "three")]
    assert order(*left, *right) == expected
    assert [found.text for found in paragraphs(reading_order(left))] == expected[:3]


def test_signs_in_the_rows_of_a_table_are_no_bullets() -> None:
    rows = [
        line(text, 700 - 14 * at, left=left, width=20)
        for at in range(3)
        for left, text in ((50, f"a{at}"), (80, "\u25cb"), (110, f"b{at}"), (140, "\u25cb"))
    ]
    (table,) = reading_order(rows)
    assert table.text.splitlines()[0] == "| a0 | \u25cb | b0 | \u25cb |"


def test_boxes_of_text_beside_one_another_are_read_one_after_the_other() -> None:
    left, right = column("l", 50, 2, width=60), column("r", 320, 2, width=60)
    assert order(*left, *right) == ["l0", "l1", "r0", "r1"]
    assert order(*by_rows(*left, *right)) == ["l0 r0", "l1 r1"]
    # sums beside their names
    sums = [run._replace(text=f"{at}.00") for at, run in enumerate(right)]
    assert order(*left, *sums) == ["l0 0.00", "l1 1.00"]
    # one line beside others says nothing
    assert order(*left, *right[:1], line("foot", 664, left=320, width=60)) == ["l0 r0", "l1", "foot"]
    # boxes of a column that stands in the file in two parts
    far, apart = column("l", 50, 14, width=60), column("r", 320, 14, width=60)
    far[3], apart[5] = far[3]._replace(text="wide"), apart[5]._replace(text="broad")
    assert order(*far[:7], *apart, *far[7:]) == [run.text for run in (*far, *apart)]
