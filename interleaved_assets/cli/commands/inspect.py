"""``interleaved inspect``: print the contents of shard files."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from interleaved_assets.cli.terminal.options import FILE, as_json_lines

if TYPE_CHECKING:
    from interleaved_assets.cli.terminal.console import DataConsole
    from interleaved_assets.pipeline.files.inspect import FileFacts, Spread

SECTION: Final = "Shard files"
ITEMS_SHOWN: Final = 20
"""Most rows of a document that are printed."""


@click.command("inspect")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT…", type=FILE)
@click.option(
    "-n",
    "--documents",
    type=click.IntRange(0, 1_000_000),
    default=2,
    show_default=True,
    metavar="N",
    help="Documents to show of each file.",
)
@as_json_lines
@click.pass_obj
def inspect_command(file: str | None, *, inputs: Sequence[str], documents: int, as_json: bool) -> int:
    """Show the contents of shard files: counts, images, errors, documents.

    INPUT is a shard file of any format, a folder or glob of them, or a URL (s3://…).

    \b
    interleaved inspect data/raw/a.tar
    interleaved inspect 's3://bucket/raw/*.tar' --documents 0 --json
    """
    from interleaved_assets.cli.terminal.console import console, each_file, print_json
    from interleaved_assets.pipeline.files.inputs import find_shard_files
    from interleaved_assets.pipeline.files.inspect import inspect_file
    from interleaved_assets.settings import load_settings_or_defaults

    settings, out = load_settings_or_defaults(file), console()
    files = find_shard_files(inputs, settings.storage)
    work = {one.uri: partial(inspect_file, one, settings, documents=documents) for one in files}
    failed = 0
    for facts in each_file("reading", work, out, as_json=as_json):
        if facts is None:
            failed += 1
        elif as_json:
            print_json(facts.model_dump(mode="json"))
        else:
            _print_shard(facts, out)
    return 2 if failed else 0


def _print_shard(facts: "FileFacts", out: "DataConsole") -> None:
    from rich.filesize import decimal

    from interleaved_assets.model.columns import RESERVED_COLUMNS
    from interleaved_assets.reporting.wording.text import counted

    counts = facts.counts
    out.print_line(f"{facts.uri}: {facts.form}, {decimal(facts.size)}")
    lines = [
        ("samples", f"{counts.samples:,}"),
        ("rows", f"{counts.rows:,}"),
        ("texts", f"{counts.texts:,}"),
        ("images", f"{counts.images:,}, {decimal(counts.image_bytes)}"),
        ("errors", ", ".join(f"{code} {rows:,}" for code, rows in facts.errors.items()) or "none"),
    ]
    lines += [("layout", problem) for problem in facts.layout]
    if facts.notes:
        lines.append(("notes", ", ".join(f"{name} {number:,}" for name, number in facts.notes.items())))
    out.print_facts(lines)
    if facts.images:
        kinds = (
            (one.format, f"{one.images:,}", _spread(one.bytes, in_bytes=True), _spread(one.width), _spread(one.height))
            for one in facts.images
        )
        out.print_table(("images", "number", "bytes", "width", "height"), kinds)
    if own := [column for column in facts.columns if column.name not in RESERVED_COLUMNS]:
        columns = ((column.name, column.type, f"{column.values:,}") for column in own)
        out.print_table(("column", "type", "rows with a value"), columns)
    for sample_id, items in facts.documents.items():
        out.print_line(f"document {sample_id}")
        for item in items[:ITEMS_SHOWN]:
            said = " · ".join(text for text in (item.content, item.error) if text)
            out.print_line(f"  {item.position:>4}  {item.modality:<8}  {said}")
        if len(items) > ITEMS_SHOWN:
            out.print_line(f"        … {counted(len(items) - ITEMS_SHOWN, 'more row')}; --json has all")
    out.print()


def _spread(spread: "Spread | None", *, in_bytes: bool = False) -> str:
    from rich.filesize import decimal

    if spread is None:
        return ""
    low, median, high = (decimal(int(value)) if in_bytes else f"{value:,.0f}" for value in spread.model_dump().values())
    return low if low == high else f"{low} to {high}, median {median}"
