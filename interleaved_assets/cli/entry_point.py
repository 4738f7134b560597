"""The frame around every command: a check that arguments are text, errors as lines on stderr, exit codes."""

import errno
import io
import logging
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from interleaved_assets.cli.commands.group import interleaved

# help and completion wait for the imports of this module: pyarrow alone, which the errors import, takes 0.3 s

FAILED, INTERRUPTED, READER_GONE = 2, 130, 141
"""Exit codes. The last is that of a program that SIGPIPE ends."""
_NOT_WRITTEN: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of writing to a file that is open."""


class _Shown(logging.Formatter):
    """Formats warnings, whose names of files and samples are data, without control characters and credentials."""

    def format(self, record: logging.LogRecord) -> str:
        from interleaved_assets.model.shown import ShownFormatter

        return ShownFormatter().format(record)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code: 0 done, 1 nothing found or not sound, 2 an error, 130 Ctrl-C.

    An error is reported on stderr, with ``--json`` as one line. The exit code is 141 if the reader of stdout is gone,
    as after ``| head``: the command ends there.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    for name in ("stdout", "stderr"):
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            if isinstance(stream.buffer, io.RawIOBase):  # as of PYTHONUNBUFFERED: what a short write leaves is lost
                stream = open(stream.fileno(), "w", 1, stream.encoding, closefd=False)  # noqa: SIM115
                setattr(sys, name, stream)
            stream.reconfigure(errors="backslashreplace")  # names and texts may have characters that the locale lacks
    if logging.lastResort is not None:  # what Python prints warnings with where nobody has set a handler
        logging.lastResort.setFormatter(_Shown())
    try:
        _check_folder()
        _check_arguments(given)
        with _ended_by_sigterm():
            code = interleaved.main(given, prog_name="interleaved", standalone_mode=False)
            if sys.stdout is not None:  # it is None if closed with >&-
                sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        _print_error(error.format_message(), given)
        return FAILED
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        message = " ".join(error.format_message().split()).rstrip(".")  # choices stand on lines of their own
        see = " See" if message.endswith("?") else "; see"
        _print_error(f"interleaved: {message}{f'{see} {context.command_path} --help' if context else ''}", given)
        return FAILED
    except (click.Abort, KeyboardInterrupt):
        print("interleaved: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return READER_GONE
    except _own_error() as error:
        _print_error(f"interleaved: {error}", given)
        return FAILED
    except OSError as error:
        # an error of stdout names no file
        if error.filename is not None or error.errno not in _NOT_WRITTEN:
            raise
        _drop_output()
        _print_error(f"interleaved: cannot write the output: {error.strerror}", given)
        return FAILED


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end a command as SIGINT does."""
    handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def _drop_output() -> None:
    """Drop the text that stdout still buffers: it cannot be written, and Python would report that at its end."""
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123  no path of data
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _own_error() -> type[Exception]:
    from interleaved_assets.model.errors import InterleavedError

    return InterleavedError


def _print_error(text: str, arguments: Sequence[str]) -> None:
    from interleaved_assets.cli.terminal.console import print_error

    # readers of JSON read stderr by lines; for people a list is printed below its message
    one_line = "--json" in arguments
    print_error(" ".join(line.strip() for line in text.split("\n")) if one_line else text)


def _check_folder() -> None:
    """Refuse a present folder that was deleted, because no relative path can be found from there."""
    try:
        Path.cwd()
    except FileNotFoundError as error:
        from interleaved_assets.model.errors import StorageError

        raise StorageError("the present folder was deleted: change to another one") from error


def _check_arguments(arguments: Sequence[str]) -> None:
    """Refuse arguments that are not text: ids, keys and paths are text, and Arrow and JSON fail on other bytes."""
    for argument in arguments:
        if "\0" in argument or re.search("[\ud800-\udfff]", argument):  # Python's form of bytes that are not UTF-8
            from interleaved_assets.cli.terminal.console import short
            from interleaved_assets.model.errors import OptionError

            raise OptionError(f"argument {short(argument)} is not UTF-8 text")
