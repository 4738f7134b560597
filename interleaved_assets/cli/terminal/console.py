"""Output of the command line: tables and facts on stdout, errors on stderr, without control characters from data."""

import json
import logging
import math
import sys
import time
import webbrowser
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from interleaved_assets.io.storage import is_local, local_path
from interleaved_assets.model.errors import InterleavedError, describe
from interleaved_assets.model.shown import escaped, shown

Result = TypeVar("Result")

PLAIN_WIDTH: Final = 160
"""Width, in columns of text, of a table that is written to a file or a pipe."""
LONGEST_SHOWN: Final = 80
"""Most characters of an argument that a message repeats."""
LONGEST_LINE: Final = 2000
"""Most characters of a line of an error message, which may name a path of any length."""
LINE_SECONDS: Final = 10.0
"""Seconds between two lines of progress if there is no terminal."""


class DataConsole(Console):
    """A console that prints text from data without markup and without control characters.

    ``[left]`` in a sample id, for example, stays as it is. All texts, cells and titles given as ``str`` pass
    :meth:`render_str`.
    """

    def render_str(self, text: str, **style: Any) -> Text:
        return super().render_str(escaped(text), **style)

    def print_line(self, text: str) -> None:
        """Print a line of any length, in one colour, so that its names can be copied and searched."""
        self.print(text, soft_wrap=True, highlight=False)

    def print_facts(self, lines: Sequence[tuple[str, str]]) -> None:
        """Print names and values, one a line of any length."""
        width = max(len(name) for name, _ in lines)
        for name, value in lines:
            self.print_line(f"  {name:<{width}}  {value}")

    def print_table(
        self,
        columns: Iterable[str],
        rows: Iterable[Iterable[str]],
        *,
        title: str | None = None,
        right: Collection[str] = (),
    ) -> None:
        """Print a table whose cells fold; the columns ``right`` have numbers, which are aligned on the right."""
        table = Table(title=title, title_justify="left")
        for column in columns:
            table.add_column(column, overflow="fold", justify="right" if column in right else "left")
        for row in rows:
            table.add_row(*row)
        self.print(table)

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError  # rich would exit with 1, which means that nothing was found


def console() -> DataConsole:
    """Return a console on stdout, as wide as the terminal, or :data:`PLAIN_WIDTH`."""
    on_terminal = sys.stdout is not None and sys.stdout.isatty()  # it is None if closed with >&-
    return DataConsole(markup=False, emoji=False, width=None if on_terminal else PLAIN_WIDTH)


@contextmanager
def progress(
    what: str, total: int, out: Console, *, as_json: bool = False, lines: bool = False
) -> Iterator[Callable[[], None]]:
    """Show progress while the block runs, as a bar on a terminal; yield the function that counts one more.

    Lines printed in the block appear above the bar. With ``as_json``, stdout is for JSON, and there is no bar.
    ``lines`` prints a line on stderr every :data:`LINE_SECONDS` if there is no terminal, for commands that print
    nothing else until they are done.
    """
    if as_json or not out.is_terminal:
        yield _lines_of(what, total) if lines and not as_json else lambda: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task(what, total=total if total > 1 else None)
        yield lambda: bar.advance(task)


def _lines_of(what: str, total: int) -> Callable[[], None]:
    done, printed = 0, time.monotonic()

    def advance() -> None:
        nonlocal done, printed
        done += 1
        if time.monotonic() - printed >= LINE_SECONDS:
            printed = time.monotonic()
            print_error(f"{what}: {done:,} of {total:,}")

    return advance


@contextmanager
def without_warnings() -> Iterator[None]:
    """Suppress warnings of the package on stderr while the block runs, for commands that report the same themselves."""
    package = logging.getLogger("interleaved_assets")
    level = package.level
    package.setLevel(logging.ERROR)
    try:
        yield
    finally:
        package.setLevel(level)


def print_json(value: Any) -> None:
    """Print a value as one line of JSON, in ASCII: no character of the data reaches the terminal as it is.

    JSON has no NaN and no infinity: they become null.
    """
    try:
        print(json.dumps(_finite(value), allow_nan=False), flush=True)
    except BrokenPipeError:
        raise BrokenPipeError from None  # with its number, click would exit with 1, which means that nothing was found


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def print_failure(uri: str, error: Exception, *, as_json: bool) -> None:
    """Report the error of one file on stderr, and as JSON on stdout; the message names the file."""
    text = describe(error)
    if as_json:
        print_json({"input": uri, "error": text})
    print_error(f"interleaved: {text if escaped(uri) in escaped(text) else f'{uri}: {text}'}")


def each_file(
    what: str, work: Mapping[str, Callable[[], Result]], out: Console, *, as_json: bool
) -> Iterator[Result | None]:
    """Yield the result of the work on each file; None for a file that cannot be read, whose error is printed."""
    with progress(what, len(work), out, as_json=as_json) as advance, without_warnings():
        for uri, do in work.items():
            try:
                yield do()
            except InterleavedError as error:
                print_failure(uri, error, as_json=as_json)
                yield None
            advance()


def counted_drops(dropped: dict[str, int]) -> str:
    """Return reasons with their numbers of rows, such as ``sharpness_below 3, qr_above 1``."""
    return ", ".join(f"{reason} {rows:,}" for reason, rows in dropped.items())


def print_error(text: str) -> None:
    """Print a message on stderr; its lines are cut to :data:`LONGEST_LINE` characters."""
    lines = shown(text).split("\n")
    print("\n".join(f"{line[:LONGEST_LINE]}…" if len(line) > LONGEST_LINE else line for line in lines), file=sys.stderr)


def short(text: str) -> str:
    """Return an argument for a message: quoted, cut to :data:`LONGEST_SHOWN` characters."""
    return repr(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…")


def open_page(uri: str) -> bool:
    """Open the page at ``uri``; return False, with a line on stderr, if no browser can show it."""
    if not is_local(uri):
        print_error(
            f"interleaved: no browser opens {uri}: copy it to this machine, or look at it with interleaved serve"
        )
        return False
    if webbrowser.open(local_path(uri).as_uri()) is False:
        print_error(f"interleaved: there is no browser here to open {uri} with")
        return False
    return True
