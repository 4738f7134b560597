"""``interleaved validate``: check whether shard files are sound."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from interleaved_assets.cli.terminal.options import FILE, as_json_lines

if TYPE_CHECKING:
    from interleaved_assets.cli.terminal.console import DataConsole
    from interleaved_assets.pipeline.files.validate import Validation

SECTION: Final = "Shard files"


@click.command("validate")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT…", type=FILE)
@click.option("--no-decode", is_flag=True, help="Read only the headers of images.")
@as_json_lines
@click.pass_obj
def validate_command(file: str | None, *, inputs: Sequence[str], no_decode: bool, as_json: bool) -> int:
    """Check whether shard files are sound, and list findings by code.

    INPUT is a shard file of any format, a folder or glob of them, or a URL (s3://…). Every image is decoded.

    Exit codes: 0 all are sound, 1 findings, 2 a file cannot be read.

    \b
    interleaved validate data/raw/a.tar
    interleaved validate data/raw --json
    """
    from interleaved_assets.cli.terminal.console import console, each_file, print_json
    from interleaved_assets.pipeline.files.inputs import find_shard_files
    from interleaved_assets.pipeline.files.validate import validate_file
    from interleaved_assets.settings import load_settings_or_defaults

    settings, out = load_settings_or_defaults(file), console()
    files = find_shard_files(inputs, settings.storage)
    work = {one.uri: partial(validate_file, one, settings, decode=not no_decode) for one in files}
    unsound = unread = 0
    for found in each_file("validating", work, out, as_json=as_json):
        if found is None:
            unread += 1
            continue
        unsound += not found.is_sound
        if as_json:
            print_json({**found.model_dump(mode="json"), "sound": found.is_sound})
        else:
            _print_findings(found, out)
    return 2 if unread else 1 if unsound else 0


def _print_findings(found: "Validation", out: "DataConsole") -> None:
    from interleaved_assets.reporting.wording.text import counted

    counts = found.counts
    what = f"{counted(counts.samples, 'sample')}, {counted(counts.rows, 'row')}, {counted(counts.images, 'image')}"
    verdict = "sound" if found.is_sound else "not sound"
    out.print_line(f"{found.uri}: {verdict} ({what})")
    for one in found.findings:
        out.print_line(f"  {one.level} {one.code} ({one.count:,}): {one.detail}")
