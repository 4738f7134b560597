"""The work of ``interleaved validate``: check whether shard files are sound."""

from collections.abc import Sequence

from interleaved_assets.cli.terminal.console import (
    DataConsole,
    console,
    print_failure,
    print_json,
    progress,
    without_warnings,
)
from interleaved_assets.model.errors import InterleavedError
from interleaved_assets.pipeline.files.inputs import find_shard_files
from interleaved_assets.pipeline.files.validate import Validation, validate_file
from interleaved_assets.reporting.wording.text import counted
from interleaved_assets.settings import load_settings_or_defaults


def show_findings(file: str | None, *, inputs: Sequence[str], no_decode: bool, as_json: bool) -> int:
    """Print the findings of each file, and return the exit code: 0 sound, 1 findings, 2 a file cannot be read."""
    settings, out = load_settings_or_defaults(file), console()
    files = find_shard_files(inputs, settings.storage)
    unsound = unread = 0
    with progress("validating", len(files), out, as_json=as_json) as advance, without_warnings():
        for one in files:
            try:
                found = validate_file(one, settings, decode=not no_decode)
            except InterleavedError as error:
                unread += 1
                print_failure(one.uri, error, as_json=as_json)
            else:
                unsound += not found.is_sound
                if as_json:
                    print_json({**found.model_dump(mode="json"), "sound": found.is_sound})
                else:
                    _print_findings(found, out)
            advance()
    return 2 if unread else 1 if unsound else 0


def _print_findings(found: Validation, out: DataConsole) -> None:
    counts = found.counts
    what = f"{counted(counts.samples, 'sample')}, {counted(counts.rows, 'row')}, {counted(counts.images, 'image')}"
    verdict = "sound" if found.is_sound else "not sound"
    out.print_line(f"{found.uri}: {verdict} ({what})")
    for one in found.findings:
        out.print_line(f"  {one.level} {one.code} ({one.count:,}): {one.detail}")
