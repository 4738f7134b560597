"""``interleaved drops``: print the ledgers of one shard, with the contents of the rows."""

from typing import Any, Final

import click

from interleaved_assets.cli.terminal.complete import complete_made_shards

SECTION: Final = "Samples and dropped rows"
LONGEST_CONTENT: Final = 200
"""Most characters of a row's content in the table."""
_COLUMNS: Final = ("sample", "position", "modality", "stage", "reason", "measured", "threshold", "content or detail")


@click.command("drops")
@click.option(
    "--shard", metavar="KEY", required=True, help="Partition key of the shard.", shell_complete=complete_made_shards
)
@click.option("--reason", help="Only rows dropped for this reason, such as sharpness_below.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, with whole texts.")
@click.pass_obj
def drops_command(file: str | None, *, shard: str, reason: str | None, as_json: bool) -> int:
    """List the dropped rows of a shard with reason, measured value, threshold, and their text or fields.

    \b
    interleaved drops --shard 2024/part-0003
    interleaved drops --shard 2024/part-0003 --reason ratio_above --json
    """
    import pyarrow.compute as pc

    from interleaved_assets.cli.terminal.console import console, print_error, print_json, short
    from interleaved_assets.cli.terminal.shard_keys import stored_keys_problem
    from interleaved_assets.model.ledger import drop_reasons
    from interleaved_assets.pipeline.lineage.contents import dropped_contents, row_keys
    from interleaved_assets.pipeline.run.stored_records import read_valid_records
    from interleaved_assets.pipeline.stages.dag import LEDGER_STAGES, stage_dag
    from interleaved_assets.pipeline.stages.names import IMAGE_EXPORT
    from interleaved_assets.pipeline.stages.outputs import read_ledgers
    from interleaved_assets.reporting.wording.text import counted
    from interleaved_assets.settings import load_settings

    settings = load_settings(file)
    if problem := stored_keys_problem([shard], settings.storage):
        print_error(f"interleaved: {problem}")
        return 1
    paths = settings.storage.shard(shard)
    # the ledger of an earlier rewriting says nothing of the present rows
    stages = [stage for stage in LEDGER_STAGES if stage in stage_dag(settings)]
    records = read_valid_records(paths, (*stages, IMAGE_EXPORT))
    if not records:
        print_error(f"no shard {short(shard)} has been materialized")
        return 1
    ledger = read_ledgers(paths, list(records))
    reasons = drop_reasons(ledger)
    if reason is not None:
        ledger = ledger.filter(pc.equal(ledger["reason"], reason))
    if not ledger.num_rows:
        what = f" for {short(reason)}; its reasons: {', '.join(reasons) or 'none'}" if reason is not None else ""
        print_error(f"no row of shard {shard} was dropped{what}")
        return 1
    contents = dropped_contents(ledger, paths)
    rows = [
        {"shard": shard, **row, "content": contents.get(key)}
        for key, row in zip(row_keys(ledger), ledger.to_pylist(), strict=True)
    ]
    if as_json:
        for row in rows:
            print_json(row)
    else:
        title = f"{shard}: {counted(len(rows), 'dropped row')}"
        console().print_table(_COLUMNS, map(_line, rows), title=title)
    return 0


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    from interleaved_assets.model.shown import cut_text

    measured, threshold = ("" if row[name] is None else f"{row[name]:.4g}" for name in ("measured", "threshold"))
    content = cut_text(row["content"] or "", LONGEST_CONTENT)
    said = " · ".join(text for text in (row["detail"], content) if text)
    place = (row["sample_id"], str(row["position"]), row["modality"])
    return (*place, row["stage"], row["reason"], measured, threshold, said)
