"""Tables of measured figures on a Markdown page, each between marks with its name."""

from collections.abc import Iterable, Sequence
from pathlib import Path


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first are set to the right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def replace_figures(page: Path, name: str, report: str) -> None:
    """Put ``report`` between ``<!-- name -->`` and ``<!-- end of name -->``, in place of what is there.

    Raises:
        ValueError: the page has no such marks, or has them more than once.
    """
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    text = page.read_text(encoding="utf-8")
    if text.count(start) != 1 or text.count(end) != 1 or text.index(start) > text.index(end):
        raise ValueError(f"{page} needs the marks {start} and {end}, in this order and once each")
    before, _, rest = text.partition(start)
    page.write_text(f"{before}{start}\n\n{report}\n\n{end}{rest.partition(end)[2]}", encoding="utf-8")
