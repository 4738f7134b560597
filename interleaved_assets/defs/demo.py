"""The work of ``interleaved demo``: draw demo shards, materialize every asset with Dagster, and print a table.

Outputs go to the output root of the project's settings, so that ``make ui`` shows them. Shards that are current are not
made again.
"""

import json
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from rich.console import Console
from rich.table import Table

from interleaved_assets.defs.build import build_definitions
from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.defs.requests import BRING_UP_TO_DATE, RANGE_END, RANGE_START
from interleaved_assets.defs.schedules import DAILY_REPORT
from interleaved_assets.defs.sensor import observation
from interleaved_assets.demo.shards import SHARDS as SHARDS_OF_DEMO
from interleaved_assets.demo.shards import write_demo_shards
from interleaved_assets.io.storage import create_file, exists, is_local, join
from interleaved_assets.model.errors import OptionError
from interleaved_assets.pipeline.raw.keys import shard_key
from interleaved_assets.pipeline.raw.listing import list_raw_shards
from interleaved_assets.pipeline.raw.snapshot import compare_with_snapshot
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.pipeline.run.stored_records import read_records, recorded_stages
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.stages.names import FINAL_TARS
from interleaved_assets.reporting.dataset import REPORT_FILE
from interleaved_assets.reporting.figures.collect import row_errors
from interleaved_assets.reporting.wording.text import most_frequent
from interleaved_assets.settings import Settings, StorageSettings, load_settings
from interleaved_assets.settings.load import FILE_NAME, FILE_VARIABLE, settings_path

TABLE_WIDTH = 150
DEFAULT_PORT = 3000
UI_OF_MAKE = "make ui"
INTERRUPTED = 130
"""Exit code after Ctrl-C or SIGTERM."""
SETTINGS = """\
# Written by `interleaved demo`. Every key with its unit, range and default: `interleaved settings`.

[storage]
raw_root = "data/raw"       # folder with the raw shards
output_root = "data/out"    # folder for all outputs

[errors]
on_materialize_error = "drop_row"   # error | warn | drop_row | drop_sample

[scoring]
scorers = ["sharpness", "sharpness_256", "qr", "thumbnail"]
qr_detector = "zxing+aruco"

[selection]
min_sharpness_256 = 150     # variance of the Laplacian at 256 pixels; blurred pictures are below
min_sharpness = 0           # the same at full resolution; 0 keeps all
max_qr_area_ratio = 0.05    # share of the picture under QR codes
min_aspect_ratio = 0.3      # width / height
max_aspect_ratio = 3.0
max_ratio = 0.5             # images for each word of a document
on_score_error = "drop_row" # an image that cannot be decoded has no score
"""
"""Settings that the demo writes into a folder without a settings file: the repository's, without CLIP's demo model, and
with the defaults of ``storage.image_bytes`` and ``serve.url``."""
INSTANCE = """\
nux: {enabled: false}
telemetry: {enabled: false}
"""
"""Dagster's configuration of an instance that the demo makes: it shows no sign-up and sends nothing."""
_OPEN_GROUPS = ",".join(f"global@global:{group}" for group in ("ingest", "score", "select", "publish"))
"""The groups of assets as the URL of Dagster's graph names those that are open; all are closed where it names none."""
PAGES = {
    "the graph of all assets": f"/asset-groups?expanded={_OPEN_GROUPS}",
    "a shard, and what was dropped": "/assets/filtered?view=partitions",
    "the whole data set": "/assets/dataset_report",
    "the runs, with their logs": "/runs",
}


def main(file: str | None, *, as_json: bool = False) -> int:
    """Run the demo, and return the exit code: 0 done, 1 a shard failed, 2 not possible here, 130 Ctrl-C or SIGTERM.

    With ``as_json`` one object is printed, with the figures of each shard.
    """
    console = Console(quiet=as_json) if sys.stdout.isatty() else Console(width=TABLE_WIDTH, quiet=as_json)
    settings = load_settings(file or settings_of_demo())
    try:
        return run_demo(settings, console, as_json=as_json)
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError):
        done = len(recorded_stages(settings.storage, [FINAL_TARS]))
        print(
            f"interleaved demo: interrupted; {done} final tars are written. Run it again to make the others.",
            file=sys.stderr,
        )
        return INTERRUPTED


def run_demo(settings: Settings, console: Console, *, as_json: bool = False) -> int:
    """Draw the demo shards, materialize every asset, print the summary, and return the exit code.

    Raises:
        OptionError: the raw root is not local, or holds other shards.
    """
    _check_raw_root(settings.storage)
    started = time.perf_counter()
    with console.status("drawing demo shards"):
        written = write_demo_shards(Path(settings.storage.raw_root))
    console.print(f"{len(written)} demo shards in {settings.storage.raw_root}")
    ui = present_ui()
    with dg.DagsterInstance.get() as instance:
        keys = register_all(instance, settings.storage)
        console.print(f"taking {len(keys)} shards through {len(stage_dag(settings))} assets, with Dagster …")
        succeeded = materialize_all(instance, settings, keys)
    if as_json:
        print(json.dumps(_facts(settings, keys, succeeded=succeeded)))
    console.print(summary_table(settings, keys))
    if exists(report := join(settings.storage.output_root, REPORT_FILE), settings.storage.options):
        console.print(f"report   {report}")
    console.print(f"ledgers  {join(settings.storage.output_root, 'dropped')}: every dropped row with its reason")
    done = f"done in {time.perf_counter() - started:.0f} s. See it in the Dagster UI:  [bold]{ui}[/bold], then"
    console.print(done, soft_wrap=True)
    for about, page in PAGES.items():
        url = f"http://127.0.0.1:{os.environ.get('UI_PORT', DEFAULT_PORT)}{page}"
        console.print(f"  {about:<32} {url}", soft_wrap=True)
    if ui != UI_OF_MAKE:
        console.print(
            "  report, documents, ledgers       in the browser without Dagster:  [bold]interleaved serve[/bold]"
        )
    elif settings.serve.url:
        console.print(f"  {'report, documents, ledgers':<32} {settings.serve.url}")
    return 0 if succeeded else 1


def settings_of_demo() -> Path:
    """Return the settings file in force; write one into this folder if there is none.

    Raises:
        SettingsError: ``INTERLEAVED_SETTINGS`` names a file that does not exist.
        StorageError: the file cannot be written into this folder.
    """
    if not (FILE_VARIABLE in os.environ or os.environ.get("DAGSTER_HOME")):
        create_file(str(Path(FILE_NAME).absolute()), SETTINGS.encode())
    return settings_path()


def present_ui() -> str:
    """Return the command that shows the Dagster instance.

    If ``DAGSTER_HOME`` is not set, an instance is made in ``.dagster_home``.
    """
    if Path("workspace.yaml").exists() and "DAGSTER_HOME" in os.environ:
        return UI_OF_MAKE
    home = Path(os.environ.setdefault("DAGSTER_HOME", str(Path(".dagster_home").absolute())))
    create_file(str(home / "dagster.yaml"), INSTANCE.encode())
    return f"DAGSTER_HOME={home} dagster dev -m interleaved_assets.definitions"


def _check_raw_root(storage: StorageSettings) -> None:
    """Raise OptionError if demo shards must not be written to the raw root."""
    root = storage.raw_root
    if not is_local(root):
        raise OptionError(
            f"storage.raw_root is {root}, but demo shards need a local folder. Set it to data/raw for the demo."
        )
    own = {shard_key(name) for name in SHARDS_OF_DEMO}
    found = list_raw_shards(storage) if Path(root).exists() else []
    if other := next((shard.key for shard in found if shard.key not in own), None):
        raise OptionError(f"{root} holds shards that are not the demo's, such as {other}. Use make ui for them.")


def register_all(instance: dg.DagsterInstance, storage: StorageSettings) -> list[str]:
    """Register and observe every shard below the raw root, and return their keys."""
    seen = compare_with_snapshot(
        list_raw_shards(storage), {}, storage, now=time.time(), quiet_seconds=0, at_most=sys.maxsize
    ).snapshot
    instance.add_dynamic_partitions(SHARDS, list(seen))
    for key, entry in seen.items():
        instance.report_runless_asset_event(observation(key, entry.source))
    return list(seen)


def materialize_all(instance: dg.DagsterInstance, settings: Settings, keys: Sequence[str]) -> bool:
    """Run the stages over all shards and then the report, in this process; return True if both runs succeeded.

    Raises:
        KeyboardInterrupt: Ctrl-C ended a run.
    """
    definitions = build_definitions(settings, in_pools=False)
    # a range follows the order in which partitions were added
    registered = [key for key in instance.get_dynamic_partitions(SHARDS) if key in set(keys)]
    over_shards = {RANGE_START: registered[0], RANGE_END: registered[-1]}
    ended = [
        _execute(definitions, job, instance, tags)
        for job, tags in ((BRING_UP_TO_DATE, over_shards), (DAILY_REPORT, {}))
    ]
    return all(ended)


def _execute(definitions: dg.Definitions, job: str, instance: dg.DagsterInstance, tags: dict[str, str]) -> bool:
    # otherwise Dagster prints the stack of every failed step, and of the interrupted one
    silent = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    result = definitions.resolve_job_def(job).execute_in_process(
        run_config=silent, instance=instance, tags=tags, raise_on_error=False
    )
    failures = [event for event in result.all_events if event.is_step_failure]
    errors = {event.step_key: error for event in failures if (error := event.step_failure_data.error)}
    if any(error.cls_name == dg.DagsterExecutionInterruptedError.__name__ for error in errors.values()):
        raise KeyboardInterrupt
    for step, error in errors.items():
        if error.cls_name == dg.DagsterExecutionStepExecutionError.__name__ and error.cause is not None:
            error = error.cause
        # Dagster puts the class with its module in front, and a failure that this project raises names the step itself
        message = re.sub(rf"^[\w.]*\b{error.cls_name}: ", "", error.message.strip())
        print(message if message.startswith(f"{step}: ") else f"{step}: {message}", file=sys.stderr)
    return result.success


def _facts(settings: Settings, keys: Sequence[str], *, succeeded: bool) -> dict[str, Any]:
    """Return the results of the demo for JSON. A failed shard lacks the stages that it did not reach."""
    shards = {}
    for key in keys:
        records = read_records(settings.storage.shard(key), stage_dag(settings))
        stages = {
            name: {"counts_out": record.counts_out.model_dump(), "dropped": record.dropped}
            for name, record in records.items()
        }
        shards[key] = {"stages": stages, "errors": row_errors(records) if records else {}}
    report = join(settings.storage.output_root, REPORT_FILE)
    return {"succeeded": succeeded, "report": report, "shards": shards}


def summary_table(settings: Settings, keys: Sequence[str]) -> Table:
    """Return a table with a line per shard: samples, images and rows in and kept, drops with reasons, errors.

    Drops and errors are numbers of rows. The reasons stand below the shard, so that they fit into 80 columns.
    """
    table = Table(title="Demo shards, from raw shard to final tar", title_justify="left")
    table.add_column("shard, and main reasons", overflow="fold")
    for column in ("samples", "images", "rows", "dropped", "errors"):
        table.add_column(column, justify="right", no_wrap=True)
    for key in keys:
        reasons, *figures = _figures(read_records(settings.storage.shard(key), stage_dag(settings)))
        table.add_row(f"{key}\n  {reasons}" if reasons else key, *figures)
    return table


def _figures(records: dict[str, Record]) -> list[str]:
    first, last = records.get("normalized"), records.get("final_tars")
    if first is None:
        return ["failed: interleaved status says why", "", "", "", "", ""]
    dropped: dict[str, int] = {}
    for record in records.values():
        for reason, count in record.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    return [
        ", ".join(f"{count} {reason}" for reason, count in most_frequent(dropped)[:3]),
        _arrow(first.counts_in.samples, last.counts_out.samples if last else 0),
        _arrow(first.counts_in.images, last.counts_out.images if last else 0),
        _arrow(first.counts_in.rows, last.counts_out.rows if last else 0),
        str(sum(dropped.values())),
        str(sum(row_errors(records).values())),
    ]


def _arrow(before: int, after: int) -> str:
    return f"{before} → {after}"
