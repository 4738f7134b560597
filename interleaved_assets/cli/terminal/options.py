"""Options shared by several commands."""

from typing import Final

import click

FILE: Final = click.Path(readable=False)
"""A file, folder or URL. The shell completes it, and the command that reads it reports its errors."""
FOLDER: Final = click.Path(file_okay=False, readable=False)
"""A folder or URL below which a command reads or writes."""

as_json: Final = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
"""Option of a command with one result."""
as_json_lines: Final = click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout.")
"""Option of a command that prints a result for each file, shard or row."""
jobs: Final = click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 256),
    metavar="N",
    help="Shards to work on at once; default: the setting run.parallel_shards.",
)
overwrite: Final = click.option("--overwrite", is_flag=True, help="Replace files that exist.")
filters: Final = click.option(
    "--filter",
    "filters",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting of [selection], such as min_short_side=200 or min_sharpness=none. May be repeated.",
)
policy: Final = click.option(
    "--on-error",
    "--on-materialize-error",
    "policy",
    type=click.Choice(["error", "warn", "drop_row", "drop_sample"]),
    help="What to do with rows that cannot be read; default: the setting errors.on_materialize_error.",
)
