"""``interleaved convert``: shards to tar or Parquet, one output for each input."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from interleaved_assets.cli.terminal.complete import complete_writable_endings
from interleaved_assets.cli.terminal.options import FILE, FOLDER, as_json_lines, filters, jobs, overwrite, policy

if TYPE_CHECKING:
    from interleaved_assets.model.errors import ErrorPolicy
    from interleaved_assets.pipeline.run.record import Record

SECTION: Final = "Shard files"


@click.command("convert")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT…", type=FILE)
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    required=True,
    help="Folder or URL for the outputs.",
    type=FOLDER,
)
@click.option(
    "--to",
    "form",
    metavar="ENDING",
    required=True,
    shell_complete=complete_writable_endings,
    help="Ending of the outputs: parquet, tar, tar.gz, or that of another format that can be written.",
)
@filters
@click.option("--selection", "whole_section", is_flag=True, help="Apply all filters of the section [selection].")
@policy
@jobs
@overwrite
@as_json_lines
@click.pass_obj
def convert_command(
    file: str | None,
    *,
    inputs: Sequence[str],
    output: str,
    form: str,
    filters: Sequence[str],
    whole_section: bool,
    policy: "ErrorPolicy | None",
    jobs: int | None,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Convert shards to tar or Parquet, one output for each input, named like its shard in a project.

    All rows are kept unless filters are given.

    INPUT is a shard file of any format, a folder or glob of them, or a URL (s3://…). An output whose input and settings
    are those of an earlier conversion is not made again. An input that fails does not stop the others.

    \b
    interleaved convert data/raw -o data/parquet --to parquet
    interleaved convert 's3://bucket/raw/*.tar' -o out --to tar --filter min_short_side=200 --on-error drop_row
    """
    from interleaved_assets.cli.terminal.console import console, print_error, print_failure, print_json, progress
    from interleaved_assets.cli.terminal.name_value import names_and_values
    from interleaved_assets.model.shown import without_credentials
    from interleaved_assets.pipeline.files.convert import Conversion, check_outputs, convert_file
    from interleaved_assets.pipeline.files.filtering import check_filters, measurable, selection_settings
    from interleaved_assets.pipeline.files.inputs import find_shard_files, with_policy
    from interleaved_assets.pipeline.run.shard_map import OnThreads, Task, each, each_result
    from interleaved_assets.reporting.wording.text import counted
    from interleaved_assets.settings import load_settings_or_defaults

    settings, out = with_policy(load_settings_or_defaults(file), policy), console()
    selection = selection_settings(settings, names_and_values(filters), whole_section=whole_section)
    if selection is not None:
        columns = [name for names in measurable(settings.scoring).values() for name in names]
        if passed_over := check_filters(selection, columns, whole_section=whole_section):
            print_error(f"filters that need other scores and are not applied: {', '.join(passed_over)}")
    conversion = Conversion(output, f".{form}", settings, selection, overwrite)
    files = find_shard_files(inputs, settings.storage)
    check_outputs(files, conversion)

    by_uri = {one.uri: one for one in files}
    work = partial(each, lambda uri: convert_file(by_uri[uri], conversion))
    place = OnThreads(work, jobs or settings.run.shards_at_once)
    made = current = failed = 0
    with progress("converting", len(files), out, as_json=as_json) as advance:
        for one in filter(None, each_result(place, [Task((uri,), "convert") for uri in by_uri])):
            advance()
            if isinstance(one.result, Exception):
                failed += 1
                print_failure(one.key, one.result, as_json=as_json)
                continue
            record, is_current = one.result
            uri = without_credentials(one.key)
            made, current = made + (not is_current), current + is_current
            if as_json:
                print_json(_facts(uri, record, is_current=is_current))
            else:
                out.print_line(_line(uri, record, is_current=is_current))
    if not as_json:
        what = f"{counted(len(files), 'file')}: {made:,} converted, {current:,} current, {failed:,} failed"
        out.print_line(what)
    return 2 if failed else 0


def _line(uri: str, record: "Record", *, is_current: bool) -> str:
    from interleaved_assets.cli.terminal.console import counted_drops
    from interleaved_assets.reporting.wording.text import counted

    before, after = record.counts_in, record.counts_out
    what = f"{counted(after.samples, 'sample')}, {counted(after.texts, 'text')}, {counted(after.images, 'image')}"
    if record.dropped:
        what += f"; {before.rows - after.rows:,} of {before.rows:,} rows dropped: {counted_drops(record.dropped)}"
    return f"{uri} → {record.outputs['rows'].uri}: {'current, ' if is_current else ''}{what}"


def _facts(uri: str, record: "Record", *, is_current: bool) -> dict[str, Any]:
    return {
        "input": uri,
        "output": record.outputs["rows"].uri,
        "ledger": record.outputs["ledger"].uri,
        "current": is_current,
        "size": record.outputs["rows"].size,
        "content": record.outputs["rows"].content,
        "counts_in": record.counts_in.model_dump(),
        "counts_out": record.counts_out.model_dump(),
        "errors": record.errors,
        "dropped": record.dropped,
    }
