"""Options that several commands have."""

from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]
FILE = click.Path(readable=False)
"""A file, folder or URL: the shell completes it, and the command that reads it reports what is wrong with it."""


def as_json(command: Command) -> Command:
    """``--json`` of a command with one result."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")(command)


def as_json_lines(command: Command) -> Command:
    """``--json`` of a command that prints a result for each file, shard or row."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout.")(command)


def jobs(command: Command) -> Command:
    """``--jobs``."""
    text = "Shards to work on at once; default: run.parallel_shards."
    return click.option("-j", "--jobs", type=click.IntRange(1, 256), metavar="N", help=text)(command)


def overwrite(command: Command) -> Command:
    """``--overwrite``."""
    return click.option("--overwrite", is_flag=True, help="Replace files that exist.")(command)


def filters(command: Command) -> Command:
    """``--filter``, any number of times."""
    text = "A setting of [selection], such as min_short_side=200 or min_sharpness=none. May be repeated."
    return click.option("--filter", "filters", metavar="NAME=VALUE", multiple=True, help=text)(command)


def policy(command: Command) -> Command:
    """``--on-error``."""
    text = "What to do with rows that cannot be read; default: errors.on_materialize_error."
    choice = click.Choice(["error", "warn", "drop_row", "drop_sample"])
    return click.option("--on-error", "--on-materialize-error", "policy", type=choice, help=text)(command)
