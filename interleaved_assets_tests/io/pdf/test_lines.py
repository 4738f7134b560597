"""The runs of a row as one line, and lines as paragraphs."""

import time

from interleaved_assets.io.pdf.lines import Box, Line, joined_line, paragraphs


def line(text: str, top: float, left: float = 50, width: float = 200, height: float = 10) -> Line:
    return Line(text, Box(left, top - height, left + width, top))


def texts(*lines: Line) -> list[str]:
    return [paragraph.text for paragraph in paragraphs(lines)]


def row(*runs: Line) -> list[str]:
    return [joined_line(runs, 10).text]


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


def test_a_small_indent_begins_a_paragraph_after_the_end_of_one() -> None:
    first = [line("it goes on", 700), line("and ends.", 688, width=80)]
    assert texts(*first, line("The next", 676, left=58), line("goes on", 664)) == [
        "it goes on and ends.",
        "The next goes on",
    ]
    # a heading above an indented first line
    assert texts(line("Results", 700, width=60), line("We saw", 688, left=58), line("them", 676)) == [
        "Results",
        "We saw them",
    ]
    # hanging indents, of which none is a paragraph
    entries = [line("[1] A name and a", 700), line("title", 688, left=70), line("[2] Another and a", 676)]
    assert texts(*entries, line("title", 664, left=70)) == ["[1] A name and a title\n[2] Another and a title"]


def test_an_item_goes_on_in_a_line_that_is_indented() -> None:
    items = [line("\u2022 one", 700, width=60), line("\u2022 two goes", 688), line("on", 676, left=70, width=30)]
    assert texts(*items) == ["\u2022 one\n\u2022 two goes on"]
    numbered = [line("1. one", 700, width=60), line("2. two has.", 688), line("more", 676, left=70, width=30)]
    assert texts(*numbered) == ["1. one\n2. two has. more"]
    # after an item that ends, it begins a paragraph
    assert texts(*items[:1], line("\u2022 two", 688, width=60), line("A next text", 676, left=70)) == [
        "\u2022 one\n\u2022 two",
        "A next text",
    ]
    assert texts(line("\u25aa one", 700), line("\u25aa (two)", 688)) == ["\u25aa one\n\u25aa (two)"]
    # bullets of Wingdings
    assert texts(line("\uf0a7 one", 700), line("\uf0a7 two", 688)) == ["\uf0a7 one\n\uf0a7 two"]


def test_lines_that_end_although_the_next_word_has_room_stay_lines() -> None:
    items = [line("2 Results", 700, width=60), line("The text of a full line", 688), line("is here.", 676, width=60)]
    assert texts(*items) == ["2 Results\nThe text of a full line is here."]
    assert texts(line("\u2022 one", 700), line("\u2022 two", 688)) == ["\u2022 one\n\u2022 two"]
    assert texts(line("[9] one", 700), line("goes on", 688), line("[10] two", 676)) == ["[9] one goes on\n[10] two"]
    assert texts(line("It was the", 700), line("2. of May", 688)) == ["It was the 2. of May"]
    assert texts(line("if a:", 700, width=40), line("go over all of the things", 688)) == [
        "if a:\ngo over all of the things"
    ]
    # lines in the middle, and lines beside an image
    assert texts(line("A title", 700, left=100, width=100), line("Of two lines and more", 688)) == [
        "A title Of two lines and more"
    ]
    narrow = [line("beside", 700, width=120), line("An image", 688, width=120), line("below it stands more", 676)]
    assert texts(*narrow) == ["beside An image below it stands more"]


def test_lines_of_double_spacing_are_a_paragraph() -> None:
    double = [line(text, 700 - 24 * at) for at, text in enumerate(("It goes", "on and", "on to", "the end."))]
    assert texts(*double, line("Next", 604, left=70)) == ["It goes on and on to the end.", "Next"]


def test_the_time_of_a_paragraph_does_not_grow_with_the_square_of_its_lines() -> None:
    many = [line("goes on and", -12 * at, left=50 + at % 2 * 20) for at in range(20_000)]
    begun = time.process_time()
    assert len(texts(*many)) == 1
    assert time.process_time() - begun < 5


def test_a_row_of_right_to_left_text_is_read_from_the_right() -> None:
    assert row(line("\u0628", 700, left=50, width=20), line("\u0627", 700, left=100, width=20)) == ["\u0627 \u0628"]


def beside(*words: str) -> list[str]:
    """Return the text of a line of words as drawn from the left, a space apart."""
    at = [sum(10 * len(word) + 5 for word in words[:number]) for number in range(len(words))]
    return row(*(line(word, 700, left=left, width=10 * len(word)) for word, left in zip(words, at, strict=True)))


def test_a_line_from_the_right_holds_words_and_numbers_from_the_left() -> None:
    # most letters are Latin, but the line begins and ends in Hebrew
    assert beside("\u05d1", "Python", "\u05d0") == ["\u05d0 Python \u05d1"]
    assert beside("\u05d1", "BBC", "News", "\u05d0") == ["\u05d0 BBC News \u05d1"]
    assert beside(".14:30", "\u05d1", "12/05/2024", "\u05d0") == ["\u05d0 12/05/2024 \u05d1 14:30."]
    assert beside("\u05d1", "15%-", "\u05d0") == ["\u05d0 -15% \u05d1"]
    # cells in Latin letters are no phrase
    assert row(
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


def test_lines_of_chinese_and_japanese_are_joined_without_a_space() -> None:
    assert texts(line("\u4e2d\u6587\u7684", 700), line("\u6587\u5b57\u3002", 688)) == [
        "\u4e2d\u6587\u7684\u6587\u5b57\u3002"
    ]
    assert texts(line("\u3072\u3089\uff0c", 700), line("\u304c\u306a", 688)) == ["\u3072\u3089\uff0c\u304c\u306a"]
    assert texts(line("\u4e2d\u6587", 700), line("PDF", 688)) == ["\u4e2d\u6587 PDF"]
    # Korean has spaces between words
    assert texts(line("\ud55c\uad6d", 700), line("\uae00\uc790", 688)) == ["\ud55c\uad6d \uae00\uc790"]
