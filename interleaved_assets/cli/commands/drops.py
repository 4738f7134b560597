"""``interleaved drops``: print the ledgers of shards, with the contents of the rows."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from interleaved_assets.cli.terminal.complete import complete_made_shards

if TYPE_CHECKING:
    from interleaved_assets.pipeline.run.record import Record
    from interleaved_assets.settings import Settings
    from interleaved_assets.settings.shard_paths import ShardPaths

SECTION: Final = "Samples and dropped rows"
LONGEST_CONTENT: Final = 200
"""Most characters of a row's content in the table."""
DIGITS: Final = 4
"""Fewest significant digits of measured values."""
ROWS_OF_ALL_SHARDS: Final = 200
"""Most rows that are listed without a shard and a limit."""
_COLUMNS: Final = ("sample", "position", "modality", "stage", "reason", "measured", "threshold", "content or detail")


@click.command("drops")
@click.option(
    "--shard", metavar="KEY", help="Key of the shard; default: all shards.", shell_complete=complete_made_shards
)
@click.option("--reason", help="Only rows dropped for this reason, such as sharpness_below.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1),
    help=f"Most rows; default: all of a shard, {ROWS_OF_ALL_SHARDS} of all shards.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, with whole texts.")
@click.pass_obj
def drops_command(file: str | None, *, shard: str | None, reason: str | None, limit: int | None, as_json: bool) -> int:
    """List dropped rows with reason, measured value, threshold, and their text, fields or image file.

    \b
    interleaved drops --reason qr_above
    interleaved drops --shard 2024/part-0003
    interleaved drops --shard 2024/part-0003 --reason ratio_above --json
    """
    from interleaved_assets.cli.terminal.console import console, print_error, print_json, short
    from interleaved_assets.cli.terminal.shard_keys import stored_keys_problem
    from interleaved_assets.model.errors import InterleavedError
    from interleaved_assets.pipeline.run.stored_records import recorded_stages
    from interleaved_assets.pipeline.run.threads import READERS, found_or_error
    from interleaved_assets.pipeline.stages.dag import EVERY_STAGE
    from interleaved_assets.reporting.wording.text import counted
    from interleaved_assets.settings import load_settings

    settings = load_settings(file)
    if shard is not None and (problem := stored_keys_problem([shard], settings.storage)):
        print_error(f"interleaved: {problem}")
        return 1
    keys = [shard] if shard is not None else sorted(recorded_stages(settings.storage, EVERY_STAGE))
    if not keys:
        print_error("interleaved: no shard has been materialized yet: interleaved run")
        return 1
    left = limit or (None if shard is not None else ROWS_OF_ALL_SHARDS)
    reasons: dict[str, None] = {}
    shown, unread = 0, False

    for key, drops in found_or_error(partial(_read, reason=reason, settings=settings), keys, threads=READERS):
        if isinstance(drops, InterleavedError):
            if shard is not None:
                raise drops
            unread = True
            print_error(f"interleaved: shard {key} was skipped: {drops}")
            continue
        found, of_shard = drops
        reasons.update(dict.fromkeys(of_shard))
        rows = found if left is None else found[: left - shown]
        is_cut = len(rows) < len(found)
        if as_json:
            for row in rows:
                print_json(row)
        elif rows:
            of_all = f"{len(rows):,} of " if is_cut else ""
            title = f"{key}: {of_all}{counted(len(found), 'dropped row')}"
            console().print_table(_COLUMNS, (line_of(row, row["stage"]) for row in rows), title=title)
        shown += len(rows)
        if is_cut:
            print_error(f"interleaved: stopped after {counted(shown, 'row')}; --limit N lists more")
            break
    if not shown and not unread:
        where = f"of shard {shard}" if shard is not None else f"in {counted(len(keys), 'shard')}"
        what = f" for {short(reason)}; its reasons: {', '.join(reasons) or 'none'}" if reason is not None else ""
        print_error(f"interleaved: no row {where} was dropped{what}")
        return 1
    return 2 if unread else 0


def _read(key: str, reason: str | None, settings: "Settings") -> tuple[list[dict[str, Any]], list[str]]:
    """Return the dropped rows of a shard, for this reason alone if one is given, and all reasons in its ledgers.

    A row has the key of the shard and its content.
    """
    import pyarrow.compute as pc

    from interleaved_assets.model.ledger import drop_reasons
    from interleaved_assets.pipeline.lineage.contents import dropped_contents, row_keys
    from interleaved_assets.pipeline.run.stored_records import read_records
    from interleaved_assets.pipeline.stages.dag import LEDGER_STAGES, stage_dag
    from interleaved_assets.pipeline.stages.names import IMAGE_EXPORT
    from interleaved_assets.pipeline.stages.outputs import read_ledgers

    paths = settings.storage.shard(key)
    # the ledger of an earlier rewriting says nothing of the present rows
    stages = [stage for stage in LEDGER_STAGES if stage in stage_dag(settings)]
    dropping = [record for record in read_records(paths, (*stages, IMAGE_EXPORT)).values() if record.dropped]
    for record in dropping:
        _require_ledger(record, paths)
    ledger = read_ledgers(paths, [record.stage for record in dropping])
    reasons = list(drop_reasons(ledger))
    if reason is not None:
        ledger = ledger.filter(pc.equal(ledger["reason"], reason))
    contents = dropped_contents(ledger, paths)
    rows = [
        {"shard": key, **row, "content": contents.get(row_key)}
        for row_key, row in zip(row_keys(ledger), ledger.to_pylist(), strict=True)
    ]
    return rows, reasons


def _require_ledger(record: "Record", paths: "ShardPaths") -> None:
    """Raise if the ledger is not the one of its record; a copy of it, and a ledger whose rows were deleted, is."""
    from interleaved_assets.model.errors import ShardError
    from interleaved_assets.pipeline.run.record import with_present_stamps

    ledger = record.outputs["ledger"]
    alone = record.model_copy(update={"outputs": {"ledger": ledger}})
    if with_present_stamps(alone, paths.options) is None:
        raise ShardError(f"{ledger.uri} is gone or not that of its record: interleaved run {paths.key}")


def line_of(row: Mapping[str, Any], decided: str) -> tuple[str, ...]:
    """Return the cells of a row for a table: what it is, what was ``decided`` of it, why, and its content."""
    from interleaved_assets.model import digits
    from interleaved_assets.model.shown import cut_text

    limit = row["threshold"]
    measured = "" if row["measured"] is None else digits.measured(row["measured"], limit, digits=DIGITS)
    threshold = "" if limit is None else digits.bound(limit)
    content = cut_text(row["content"] or "", LONGEST_CONTENT)
    said = " · ".join(part for part in (row.get("detail"), content) if part)
    place = (row["sample_id"], str(row["position"]), row["modality"])
    return (*place, decided, row["reason"], measured, threshold, said)
