"""``make demo``: draws demo shards, materializes every asset with Dagster, and prints a table of the results.

Outputs go to the output root of the project's settings, so that ``make ui`` shows them. Shards that are current are not
made again.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import dagster as dg
from rich.console import Console
from rich.table import Table

from interleaved_assets.defs.build import build_definitions
from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.defs.registration import register
from interleaved_assets.defs.report import REPORT_FILE
from interleaved_assets.defs.requests import BRING_UP_TO_DATE, RANGE_END, RANGE_START
from interleaved_assets.defs.schedules import DAILY_REPORT
from interleaved_assets.demo.shards import SHARDS as SHARDS_OF_DEMO
from interleaved_assets.demo.shards import write_demo_shards
from interleaved_assets.io.storage import is_local, join
from interleaved_assets.pipeline.raw.keys import shard_key
from interleaved_assets.pipeline.raw.listing import list_raw_shards
from interleaved_assets.pipeline.raw.snapshot import compare_with_snapshot
from interleaved_assets.pipeline.record import Record
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.stored_records import read_records
from interleaved_assets.settings import Settings, load_settings

TABLE_WIDTH = 150
PAGES = {
    "the graph of all assets": "/asset-groups",
    "a shard, and what was dropped": "/assets/filtered?view=partitions",
    "the whole data set": "/assets/dataset_report",
}


def main() -> int:
    """Run the demo and return the exit code."""
    console = Console() if sys.stdout.isatty() else Console(width=TABLE_WIDTH)
    settings = load_settings()
    if problem := _not_for_the_demo(settings):
        console.print(f"make demo: {problem}", style="red")
        return 2
    started = time.perf_counter()
    with console.status("drawing demo shards"):
        written = write_demo_shards(Path(settings.storage.raw_root))
    console.print(f"{len(written)} demo shards in {settings.storage.raw_root}")
    with dg.DagsterInstance.get() as instance:
        keys = register_all(instance, settings)
        console.print(f"taking {len(keys)} shards through {len(stage_dag(settings))} assets, with Dagster …")
        succeeded = materialize_all(instance, settings, keys)
    console.print(summary_table(settings, keys))
    console.print(f"report   {join(settings.storage.output_root, REPORT_FILE)}")
    console.print(f"ledgers  {join(settings.storage.output_root, 'dropped')}: every dropped row with its reason")
    console.print(
        f"done in {time.perf_counter() - started:.0f} s. See it in the Dagster UI:  [bold]make ui[/bold], then"
    )
    for about, page in PAGES.items():
        console.print(f"  {about:<32} http://127.0.0.1:3000{page}")
    return 0 if succeeded else 1


def _not_for_the_demo(settings: Settings) -> str | None:
    """The reason why demo shards must not be written to this raw root; None where they may be."""
    root = settings.storage.raw_root
    if not is_local(root):
        return f"storage.raw_root is {root}, but demo shards need a local folder. Set it to data/raw for the demo."
    own = {shard_key(name) for name in SHARDS_OF_DEMO}
    others = (
        [shard.key for shard in list_raw_shards(settings.storage) if shard.key not in own]
        if Path(root).exists()
        else []
    )
    return (
        f"{root} holds shards that are not the demo's, such as {others[0]}. Use make ui for them." if others else None
    )


def register_all(instance: dg.DagsterInstance, settings: Settings) -> list[str]:
    """Register and observe every shard below the raw root; returns their keys."""
    seen = compare_with_snapshot(
        list_raw_shards(settings.storage), {}, settings.storage, now=time.time(), quiet_seconds=0, at_most=sys.maxsize
    )
    register(instance, SHARDS, seen.keys, seen.changed)
    return seen.keys


def materialize_all(instance: dg.DagsterInstance, settings: Settings, keys: Sequence[str]) -> bool:
    """One run of the stages over all shards and one of the report, in this process; True if both succeeded."""
    definitions = build_definitions(settings)
    # a range is in the order in which partitions were added
    registered = [key for key in instance.get_dynamic_partitions(SHARDS) if key in set(keys)]
    quietly = {"loggers": {"console": {"config": {"log_level": "WARNING"}}}}
    shards_run = definitions.resolve_job_def(BRING_UP_TO_DATE).execute_in_process(
        run_config=quietly,
        instance=instance,
        tags={RANGE_START: registered[0], RANGE_END: registered[-1]},
        raise_on_error=False,
    )
    report_run = definitions.resolve_job_def(DAILY_REPORT).execute_in_process(
        run_config=quietly, instance=instance, raise_on_error=False
    )
    return shards_run.success and report_run.success


def summary_table(settings: Settings, keys: Sequence[str]) -> Table:
    """A line per shard: samples and images in and kept, rows dropped with reasons, errors, size of the final tar."""
    table = Table(title="Demo shards, from raw tar to final tar", title_justify="left")
    table.add_column("shard", no_wrap=True)
    for column in ("samples", "images", "rows kept", "dropped", "errors", "tar"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("dropped, main reasons", overflow="fold")
    for key in keys:
        table.add_row(key, *_figures(read_records(settings.storage.shard(key), stage_dag(settings))))
    return table


def _figures(records: dict[str, Record]) -> list[str]:
    first, last = records.get("normalized"), records.get("final_tars")
    if first is None:
        return ["failed", "", "", "", "", "", "see the check on this shard"]
    dropped: dict[str, int] = {}
    for record in records.values():
        for reason, count in record.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    reasons = sorted(dropped.items(), key=lambda item: (-item[1], item[0]))
    return [
        _arrow(first.counts_in.samples, last.counts_out.samples if last else 0),
        _arrow(first.counts_in.images, last.counts_out.images if last else 0),
        str(last.counts_out.rows) if last else "failed",
        str(sum(dropped.values())),
        str(sum(first.errors.values())),
        f"{last.outputs['rows'].size / 2**20:.1f} MiB" if last else "",
        ", ".join(f"{count} {reason}" for reason, count in reasons[:3]),
    ]


def _arrow(before: int, after: int) -> str:
    return f"{before} → {after}"


if __name__ == "__main__":
    sys.exit(main())
