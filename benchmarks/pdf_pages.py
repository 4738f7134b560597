"""Drawn PDF pages whose reading order is known: one to three columns, tables, a form, figures with captions.

Every word of a page occurs once. The lines stand in the file as they are read, row by row across the columns, or in any
order, as programs that write PDF do.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from interleaved_assets.demo.pdf_report import WIDTH, pdf_bytes, stream, text

LEFT: Final = 50
RIGHT: Final = WIDTH - LEFT
_SIZE: Final = 10
_LEADING: Final = 12
_SYLLABLES: Final = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
ORDERS: Final = ("read", "rows", "any")
"""Orders of the lines in a file."""


@dataclass
class DrawnPage:
    """A page with the words in the order in which they are read."""

    name: str
    dice: random.Random
    lines: list[tuple[float, float, int, str]] = field(default_factory=list)
    """Left, baseline, size and text of each line, in reading order."""
    drawings: bytes = b""

    def word(self) -> str:
        while (made := "".join(self.dice.choices(_SYLLABLES, k=self.dice.choice((1, 2, 2, 3, 4))))) in self._taken:
            pass
        self._taken.add(made)
        return made

    def __post_init__(self) -> None:
        self._taken = {""}

    def line(self, x: float, y: float, words: int, size: int = _SIZE) -> None:
        self.lines.append((x, y, size, " ".join(self.word() for _ in range(words))))

    def column(self, left: float, right: float, top: float, bottom: float) -> None:
        """Fill a column with paragraphs of five to nine lines."""
        most = (right - left) / (_SIZE * 0.52)
        y, left_lines = top, self.dice.randint(5, 9)
        while y > bottom:
            words: list[str] = []
            while sum(len(word) + 1 for word in words) < most - 9:
                words.append(self.word())
            if left_lines == 1:
                words = words[: max(len(words) // 2, 1)]
            self.lines.append((left, y, _SIZE, " ".join(words)))
            left_lines -= 1
            y -= _LEADING
            if left_lines == 0:
                left_lines, y = self.dice.randint(5, 9), y - self.dice.choice((0, 6))

    def rule(self, x: float, y: float, width: float, height: float) -> None:
        self.drawings += f"{x} {y} {width} {height} re f\n".encode()

    def words(self) -> list[str]:
        return [word for *_, content in self.lines for word in content.split()]

    def pdf(self, order: str) -> bytes:
        lines = list(self.lines)
        if order == "rows":
            lines.sort(key=lambda line: (-line[1], line[0]))
        elif order == "any":
            self.dice.shuffle(lines)
        content = b"".join(text(x, y, words, size=size) for x, y, size, words in lines)
        picture = stream(
            "/Type /XObject /Subtype /Image /Width 2 /Height 2 /ColorSpace /DeviceGray /BitsPerComponent 8",
            bytes((200, 90, 90, 200)),
        )
        return pdf_bytes([self.drawings + content], [("Im0", picture)])


def drawn_pages(seed: int) -> Iterator[DrawnPage]:
    """Yield a page of each kind."""
    for kind in (_one_column, _two_columns, _three_columns, _figure, _ruled_table, _open_table, _form, _side_note):
        name = kind.__name__.strip("_").replace("_", " ")
        page = DrawnPage(name, random.Random(f"{seed} {name}"))
        kind(page)
        yield page


def _one_column(page: DrawnPage) -> None:
    page.line(LEFT, 740, 4, 18)
    page.column(LEFT, RIGHT, 700, 430)
    page.line(LEFT, 400, 3, 14)
    page.column(LEFT, RIGHT, 375, 80)
    page.line(WIDTH / 2 - 5, 40, 1)


def _two_columns(page: DrawnPage) -> None:
    page.line(120, 740, 6, 18)
    page.line(230, 715, 3)
    for left, right in _columns(2):
        page.column(left, right, 680, 430)
        page.line(left, 400, 2, 13)
        page.column(left, right, 380, 80)
    page.line(WIDTH / 2 - 5, 40, 1)


def _three_columns(page: DrawnPage) -> None:
    page.line(LEFT, 740, 6, 18)
    for left, right in _columns(3):
        page.column(left, right, 700, 80)


def _figure(page: DrawnPage) -> None:
    for left, right in _columns(2):
        page.column(left, right, 740, 560)
    page.drawings += _picture(150, 350, 300, 180)
    page.line(120, 330, 9, 9)
    for left, right in _columns(2):
        page.column(left, right, 300, 80)


def _ruled_table(page: DrawnPage) -> None:
    page.column(LEFT, RIGHT, 740, 560)
    _table(page, 520, 6, (LEFT, 150, 270, 380, RIGHT), is_ruled=True)
    page.column(LEFT, RIGHT, 340, 80)


def _open_table(page: DrawnPage) -> None:
    page.column(LEFT, RIGHT, 740, 560)
    _table(page, 520, 7, (LEFT, 150, 270, 380, RIGHT), is_ruled=False)
    page.column(LEFT, RIGHT, 330, 80)


def _form(page: DrawnPage) -> None:
    page.line(200, 740, 3, 18)
    for y in range(690, 500, -24):
        for x, words in ((LEFT, 2), (130, 1), (320, 2), (400, 1)):
            page.line(x, y, words)
        for x in (125, 395):
            page.drawings += f"{x} {y - 4} 120 16 re S\n".encode()
    page.column(LEFT, RIGHT, 470, 380)


def _side_note(page: DrawnPage) -> None:
    page.column(LEFT, 400, 740, 400)
    for y in range(650, 590, -_LEADING):
        page.line(430, y, 2)
    page.column(LEFT, 400, 380, 80)


def _columns(count: int) -> Iterator[tuple[float, float]]:
    width = (RIGHT - LEFT - 20 * (count - 1)) / count
    for at in range(count):
        left = LEFT + at * (width + 20)
        yield left, left + width


def _table(page: DrawnPage, top: float, rows: int, edges: Sequence[float], *, is_ruled: bool) -> None:
    height = 24
    for row in range(rows):
        for left in edges[:-1]:
            page.line(left + 4, top - row * height - 16, page.dice.choice((1, 2)))
    if is_ruled:
        for row in range(rows + 1):
            page.rule(edges[0], top - row * height, edges[-1] - edges[0], 0.7)
        for edge in edges:
            page.rule(edge, top - rows * height, 0.7, rows * height)


def _picture(x: float, y: float, width: float, height: float) -> bytes:
    return f"q {width} 0 0 {height} {x} {y} cm /Im0 Do Q\n".encode()
