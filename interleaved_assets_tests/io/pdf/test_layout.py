from interleaved_assets.io.pdf.layout import Box, Line, Paragraph, paragraphs, places, reading_order


def line(text: str, top: float, left: float = 50, width: float = 200, height: float = 10) -> Line:
    return Line(text, Box(left, top - height, left + width, top))


def texts(*lines: Line) -> list[str]:
    return [paragraph.text for paragraph in paragraphs(lines)]


def test_lines_of_one_column_are_a_paragraph_and_a_gap_ends_it() -> None:
    assert texts(line("one", 700), line("two", 688), line("three", 650)) == ["one two", "three"]


def test_a_hyphen_is_removed_where_the_word_goes_on() -> None:
    assert texts(line("a hy-", 700), line("phen", 688)) == ["a hyphen"]
    assert texts(line("pages 3-", 700), line("5", 688)) == ["pages 3- 5"]
    assert texts(line("Jean-", 700), line("Luc", 688)) == ["Jean- Luc"]


def test_another_column_another_size_and_an_indent_begin_a_paragraph() -> None:
    assert texts(line("left", 100), line("right", 700, left=320)) == ["left", "right"]
    assert texts(line("Heading", 700, height=20), line("text", 678)) == ["Heading", "text"]
    assert texts(line("one", 700), line("two", 688), line("indented", 676, left=70)) == ["one two", "indented"]
    # a first line that is indented more than those below it
    assert texts(line("indented", 700, left=70), line("one", 688)) == ["indented one"]


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


def test_a_row_of_right_to_left_text_is_read_from_the_right() -> None:
    assert order(line("\u0628", 700, left=50, width=20), line("\u0627", 700, left=100, width=20)) == ["\u0627 \u0628"]


def beside(*words: str) -> list[str]:
    """Return the text of a line of words as drawn from the left, a space apart."""
    at = [sum(10 * len(word) + 5 for word in words[:number]) for number in range(len(words))]
    return order(*(line(word, 700, left=left, width=10 * len(word)) for word, left in zip(words, at, strict=True)))


def test_a_line_from_the_right_holds_words_and_numbers_from_the_left() -> None:
    # most letters are Latin, but the line begins and ends in Hebrew
    assert beside("\u05d1", "Python", "\u05d0") == ["\u05d0 Python \u05d1"]
    assert beside("\u05d1", "BBC", "News", "\u05d0") == ["\u05d0 BBC News \u05d1"]
    assert beside(".14:30", "\u05d1", "12/05/2024", "\u05d0") == ["\u05d0 12/05/2024 \u05d1 14:30."]
    assert beside("\u05d1", "15%-", "\u05d0") == ["\u05d0 -15% \u05d1"]
    # cells in Latin letters are no phrase
    assert order(
        line("a", 700, 0, 20), line("b", 700, 60, 20), line("\u05d0", 700, 120, 20), line("\u05d1\u05d1", 700, 180, 20)
    ) == ["\u05d1\u05d1 \u05d0 b a"]


def test_a_line_from_the_left_holds_a_phrase_from_the_right() -> None:
    assert beside("The", "\u05d1", "\u05d0", "word") == ["The \u05d0 \u05d1 word"]
    assert beside("One", "word:", "\u05d0") == ["One word: \u05d0"]


def test_brackets_of_text_from_the_right_are_turned_if_each_is_closed_only_so() -> None:
    assert texts(line("\u05d0 )\u05d1", 700), line("\u05d2( ]1[", 688)) == ["\u05d0 (\u05d1 \u05d2) [1]"]
    for kept in ("\u05d0 (\u05d1)", "\u05d0) \u05d1) \u05d2", "a )b( c", "\u05d0 (\u05d1"):
        assert texts(line(kept, 700)) == [kept]


def test_rows_of_cells_stay_lines_and_prose_with_a_wide_space_does_not() -> None:
    table = [Line("a b c", Box(50, 690, 250, 700), cells=3), Line("d e f", Box(50, 678, 250, 688), cells=3)]
    assert texts(*table) == ["a b c\nd e f"]
    assert texts(line("one", 700), line("two", 688)._replace(cells=2), line("three", 676)) == ["one two three"]


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


def test_lines_of_chinese_and_japanese_are_joined_without_a_space() -> None:
    assert texts(line("\u4e2d\u6587\u7684", 700), line("\u6587\u5b57\u3002", 688)) == [
        "\u4e2d\u6587\u7684\u6587\u5b57\u3002"
    ]
    assert texts(line("\u3072\u3089\uff0c", 700), line("\u304c\u306a", 688)) == ["\u3072\u3089\uff0c\u304c\u306a"]
    assert texts(line("\u4e2d\u6587", 700), line("PDF", 688)) == ["\u4e2d\u6587 PDF"]
    # Korean has spaces between words
    assert texts(line("\ud55c\uad6d", 700), line("\uae00\uc790", 688)) == ["\ud55c\uad6d \uae00\uc790"]
