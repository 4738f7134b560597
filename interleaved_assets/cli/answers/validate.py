"""The work of ``interleaved validate``: check whether shard files are sound."""

from collections.abc import Sequence
from functools import partial

from interleaved_assets.cli.terminal.console import DataConsole, console, each_file, print_json
from interleaved_assets.pipeline.files.inputs import find_shard_files
from interleaved_assets.pipeline.files.validate import Validation, validate_file
from interleaved_assets.reporting.wording.text import counted
from interleaved_assets.settings import load_settings_or_defaults


def show_findings(file: str | None, *, inputs: Sequence[str], no_decode: bool, as_json: bool) -> int:
    """Print the findings of each file, and return the exit code: 0 sound, 1 findings, 2 a file cannot be read."""
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


def _print_findings(found: Validation, out: DataConsole) -> None:
    counts = found.counts
    what = f"{counted(counts.samples, 'sample')}, {counted(counts.rows, 'row')}, {counted(counts.images, 'image')}"
    verdict = "sound" if found.is_sound else "not sound"
    out.print_line(f"{found.uri}: {verdict} ({what})")
    for one in found.findings:
        out.print_line(f"  {one.level} {one.code} ({one.count:,}): {one.detail}")
