"""What the command line prints: tables and facts on stdout, errors on stderr, without control characters from data."""

import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from interleaved_assets.model.errors import describe
from interleaved_assets.model.shown import escaped, shown

PLAIN_WIDTH: Final = 160
"""Columns of a table that goes to a file or a pipe."""
LONGEST_SHOWN: Final = 80
"""Characters of an argument that a message repeats."""
LONGEST_LINE: Final = 2000
"""Characters of a line of an error message, which may name a path of any length."""


class _DataConsole(Console):
    """Prints text from data without markup, such as ``[left]`` in a sample id, and without control characters.

    All texts, cells and titles given as ``str`` pass :meth:`render_str`.
    """

    def render_str(self, text: str, **style: Any) -> Text:
        return super().render_str(escaped(text), **style)


def console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr, as wide as the terminal, or :data:`PLAIN_WIDTH`."""
    stream = sys.stderr if stderr else sys.stdout
    return _DataConsole(markup=False, emoji=False, stderr=stderr, width=None if stream.isatty() else PLAIN_WIDTH)


@contextmanager
def progress(what: str, total: int, out: Console, *, as_json: bool = False) -> Iterator[Callable[[], None]]:
    """A progress bar while the block runs, on a terminal; elsewhere none. Gives the function that counts one more.

    Lines that are printed in the block stand above the bar.

    Args:
        what: is counted.
        total: how many there are; the bar of one only shows that work goes on.
        out: prints; with ``as_json``, where stdout is for JSON, stderr does.
        as_json: whether stdout is for JSON.
    """
    target = console(stderr=True) if as_json else out
    if not target.is_terminal:
        yield lambda: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=target, transient=True) as bar:
        task = bar.add_task(what, total=total if total > 1 else None)
        yield lambda: bar.advance(task)


@contextmanager
def without_warnings() -> Iterator[None]:
    """No warnings of the package on stderr while the block runs, for commands that report what these are about."""
    package = logging.getLogger("interleaved_assets")
    level = package.level
    package.setLevel(logging.ERROR)
    try:
        yield
    finally:
        package.setLevel(level)


def print_json(value: Any) -> None:
    """Print a value as one line of JSON, in ASCII: no character of the data reaches the terminal as it is."""
    print(json.dumps(value), flush=True)


def print_failure(uri: str, error: Exception, *, as_json: bool) -> None:
    """Report the error of one file on stderr, and as JSON on stdout; the message names the file."""
    text = describe(error)
    if as_json:
        print_json({"input": uri, "error": text})
    print_error(f"interleaved: {text if uri in text else f'{uri}: {text}'}")


def counted_drops(dropped: dict[str, int]) -> str:
    """Reasons with their numbers of rows, such as ``sharpness_below 3, qr_above 1``."""
    return ", ".join(f"{reason} {rows:,}" for reason, rows in dropped.items())


def print_error(text: str) -> None:
    """Print a message on stderr; its lines are cut to :data:`LONGEST_LINE` characters."""
    lines = shown(text).split("\n")
    print("\n".join(f"{line[:LONGEST_LINE]}…" if len(line) > LONGEST_LINE else line for line in lines), file=sys.stderr)


def short(text: str) -> str:
    """An argument as a message repeats it: quoted, cut to :data:`LONGEST_SHOWN` characters."""
    return repr(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…")


def print_facts(lines: Sequence[tuple[str, str]], out: Console) -> None:
    """Print names and values, one a line of any length, so that URIs and hashes can be copied and searched."""
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        out.print(f"  {name:<{width}}  {value}", soft_wrap=True, highlight=False)
