"""The work of ``interleaved score`` and ``interleaved select``: score one shard file, select its rows by thresholds."""

from collections.abc import Sequence

from interleaved_assets.cli.terminal.console import console, counted_drops, print_error, print_json, progress
from interleaved_assets.cli.terminal.name_value import names_and_values
from interleaved_assets.model.columns import IMAGE_KEY
from interleaved_assets.model.errors import ErrorPolicy, OptionError
from interleaved_assets.pipeline.files.filtering import selection_settings, with_scorers
from interleaved_assets.pipeline.files.inputs import ShardFile, find_shard_files, with_policy
from interleaved_assets.pipeline.files.score import score_file, select_file
from interleaved_assets.reporting.wording.text import counted
from interleaved_assets.settings import StorageSettings, load_settings_or_defaults


def show_scored(
    file: str | None,
    *,
    shard: str,
    scores: str,
    scorers: Sequence[str],
    clip: bool,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Write the scores of one shard file, print a summary, and return the exit code."""
    settings, out = with_scorers(load_settings_or_defaults(file), scorers, clip=clip), console()
    with progress("scoring", 1, out, as_json=as_json):
        scored = score_file(_one_file(shard, settings.storage), scores, settings, overwrite=overwrite)
    images, columns = scored.counts_out.images, [name for name in scored.columns if name not in IMAGE_KEY]
    if as_json:
        facts = {"images": images, "columns": columns, "errors": scored.errors}
        print_json({"input": shard, "output": scores, **facts})
        return 0
    errors = "".join(f", {code} {rows:,}" for code, rows in scored.errors.items())
    what = f"{counted(images, 'image')}{errors}; columns {', '.join(columns)}"
    out.print_line(f"{shard} → {scores}: {what}")
    return 0


def show_selected(
    file: str | None,
    *,
    shard: str,
    scores: str,
    output: str,
    ledger: str | None,
    filters: Sequence[str],
    policy: ErrorPolicy | None,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Write the rows of one shard file that pass the thresholds, and the ledger; return the exit code."""
    settings, out = with_policy(load_settings_or_defaults(file), policy), console()
    ledger = ledger or f"{output}.dropped.parquet"
    whole_section = not filters
    selection = selection_settings(settings, names_and_values(filters), whole_section=whole_section)
    assert selection is not None
    with progress("selecting", 1, out, as_json=as_json):
        selected, passed_over = select_file(
            _one_file(shard, settings.storage),
            scores,
            output,
            ledger,
            settings,
            selection,
            whole_section=whole_section,
            overwrite=overwrite,
        )
    if passed_over:
        print_error(f"filters that need other scores and are not applied: {', '.join(passed_over)}")
    before, after = selected.counts_in, selected.counts_out
    if as_json:
        facts = {"counts_in": before.model_dump(), "counts_out": after.model_dump(), "dropped": selected.dropped}
        print_json({"input": shard, "output": output, "ledger": ledger, **facts})
        return 0
    what = f"{after.samples:,} of {before.samples:,} samples, {after.images:,} of {before.images:,} images"
    out.print_line(f"{shard} → {output}: {what}")
    dropped = f": {counted_drops(selected.dropped)}" if selected.dropped else ""
    out.print_line(f"  {before.rows - after.rows:,} of {before.rows:,} rows dropped{dropped}")
    out.print_line(f"  ledger {ledger}")
    return 0


def _one_file(shard: str, storage: StorageSettings) -> ShardFile:
    files = find_shard_files([shard], storage)
    if len(files) > 1:
        raise OptionError(f"{shard} is {len(files):,} files: name one of them, such as {files[0].uri}")
    return files[0]
