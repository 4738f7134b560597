from interleaved_assets.io.pdf.layout import Box, Line, Paragraph, paragraphs, places


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
