"""One turn of :mod:`benchmarks.chain`, in a process of its own: the whole chain over a folder of raw shards, once.

    python -m benchmarks.chain_turn dagster --raw build/bench/raw-seed20240717 --work build/bench/out

``dagster`` is a run of all stages over all shards under an instance with this project's ``dagster.yaml``, as
``make demo`` runs it: created and executed in one process, events in SQLite. ``stages`` calls the same stage functions
one after another. ``run`` is ``interleaved run``. ``straight`` is the library alone: reader, ``filter_batch``, writer,
with the scorers of the chain and no records, checks or pictures; ``straight, lazily`` reads images when they are
scored. The last line of standard output is JSON: seconds and CPU seconds of the work without imports, and of the
imports, the largest memory of the process and its workers, and bytes that system calls have read and written.
"""

import argparse
import contextlib
import importlib
import json
import os
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path

_STARTED = time.perf_counter()
REPOSITORY = Path(__file__).parents[1]
SETTINGS = '[storage]\nraw_root = "{raw}"\noutput_root = "out"\n{storage}'
_SAMPLED_EVERY_S = 1.0
"""To add up the memory of a worker takes the system 10 ms: with four samples a second, 5 % of the time of a turn."""


def main() -> None:
    parser = argparse.ArgumentParser(description="One turn of benchmarks.chain.")
    parser.add_argument("way", choices=[*WAYS])
    parser.add_argument("--raw", type=Path, required=True, help="folder of raw tars")
    parser.add_argument("--work", type=Path, required=True, help="new folder for settings, instance and outputs")
    parser.add_argument("--qr-detector", help="instead of the default one")
    parser.add_argument("--image-bytes", choices=("copied", "referenced"), help="form of normalized and filtered")
    options = parser.parse_args()
    options.work.mkdir(parents=True)
    importlib.import_module("pandas")  # pyarrow imports it with the first array that it makes of Python values
    settings = options.work / "interleaved.toml"
    scoring = f'[scoring]\nqr_detector = "{options.qr_detector}"\n' if options.qr_detector else ""
    storage = f'image_bytes = "{options.image_bytes}"\n' if options.image_bytes else ""
    settings.write_text(SETTINGS.format(raw=options.raw.resolve(), storage=storage) + scoring)
    memory = _Memory()
    before = _spent()
    figures = WAYS[options.way](settings)
    moved = {what: _spent()[what] - before[what] for what in ("read_bytes", "written_bytes")}
    print(json.dumps(figures | moved | {"peak_bytes": memory.peak}))


def through_stages(file: Path) -> dict[str, object]:
    """Each shard through every stage, one call after another; by stage seconds, CPU seconds, bytes read and written."""
    from interleaved_assets.pipeline.raw.listing import list_raw_shards
    from interleaved_assets.pipeline.run.one import take_through
    from interleaved_assets.pipeline.stages.dag import stage_dag
    from interleaved_assets.settings import load_settings

    settings = load_settings(file)
    keys = [shard.key for shard in list_raw_shards(settings.storage)]
    by_stage: dict[str, Counter[str]] = {name: Counter() for name in stage_dag(settings)}
    clock = _Clock()
    for key in keys:
        for name, stage in stage_dag(settings).items():
            before = _spent()
            take_through(stage, key, settings)
            by_stage[name].update({what: spent - before[what] for what, spent in _spent().items()})
    return clock.figures() | {"by_stage": {name: dict(spent) for name, spent in by_stage.items()}}


def through_run(file: Path) -> dict[str, object]:
    """``interleaved run`` over all shards, in this process."""
    from interleaved_assets.cli import main as interleaved

    of_command = (
        "cli.terminal.console",
        "pipeline.run.many",
        "pipeline.status.dataset_status",
        "reporting.figures.facts",
        "reporting.shard.stored_pictures",
    )
    for name in of_command:
        importlib.import_module(f"interleaved_assets.{name}")
    os.environ["INTERLEAVED_SETTINGS"] = str(file)
    clock = _Clock()
    with contextlib.redirect_stdout(sys.stderr):
        status = interleaved(["run"])
    if status:
        raise SystemExit(f"interleaved run ended with status {status}")
    return clock.figures()


def straight(file: Path, *, lazily: bool = False) -> dict[str, object]:
    """Reader, filters and writer of the library, one shard after another."""
    from interleaved_assets.io import InterleavedWebdatasetReader, InterleavedWebdatasetWriter
    from interleaved_assets.selection import filter_batch
    from interleaved_assets.settings import load_settings

    settings = load_settings(file)
    raw = settings.storage.raw_root
    clock = _Clock()
    writer = InterleavedWebdatasetWriter(str(file.parent / "out/tars"), allowed_roots=[raw])
    limit = settings.run.max_batch_bytes
    scorers = tuple(name for name in settings.scoring.scorers if name != "thumbnail")
    scoring = settings.scoring.model_copy(update={"scorers": scorers})
    reader = InterleavedWebdatasetReader(raw, materialize_on_read=not lazily, max_batch_bytes=limit)
    for batch in reader:
        kept, _ = filter_batch(batch, settings.selection, scoring)
        writer.write(kept)
    return clock.figures()


def _spent() -> dict[str, float]:
    """Seconds; CPU seconds, and bytes read and written by system calls, of this process and its workers."""
    spent = Counter({"seconds": time.perf_counter()})
    for process in _processes():
        counts = dict(line.split(": ") for line in (process / "io").read_text().splitlines())
        times = (process / "stat").read_text().rpartition(")")[2].split()[11:15]  # with those of children that ended
        spent["cpu_seconds"] += sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
        spent["read_bytes"] += int(counts["rchar"])
        spent["written_bytes"] += int(counts["wchar"])
    return dict(spent)


def _processes() -> list[Path]:
    """This process and those that it has started, as folders of ``/proc``."""
    found = [Path("/proc/self").resolve()]
    for process in found:
        with contextlib.suppress(FileNotFoundError):
            for task in (process / "task").iterdir():
                found += [Path("/proc", pid) for pid in (task / "children").read_text().split()]
    return found


class _Memory:
    """The largest sum of the resident memory of this process and its workers, without what they share."""

    def __init__(self) -> None:
        self.peak = 0
        self._ended = threading.Event()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while not self._ended.wait(_SAMPLED_EVERY_S):
            found = 0
            for process in _processes():
                with contextlib.suppress(OSError):
                    rollup = (process / "smaps_rollup").read_text()
                    found += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
            self.peak = max(self.peak, found * 1024)


def through_dagster(file: Path) -> dict[str, object]:
    """One run of the job that brings shards up to date, over the range of all shards."""
    home = file.parent / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text((REPOSITORY / "dagster.yaml").read_text())
    os.environ["DAGSTER_HOME"] = str(home)

    import dagster as dg

    from interleaved_assets.defs.build import build_definitions
    from interleaved_assets.defs.demo import register_all
    from interleaved_assets.defs.requests import BRING_UP_TO_DATE, RANGE_END, RANGE_START
    from interleaved_assets.settings import load_settings

    settings = load_settings(file)
    with dg.DagsterInstance.get() as instance:
        for pool, slots in (("gpu", 1), ("shard_io", 2)):
            instance.event_log_storage.set_concurrency_slots(pool, slots)
        keys = register_all(instance, settings.storage)
        job = build_definitions(settings).resolve_job_def(BRING_UP_TO_DATE)
        quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        clock = _Clock()
        job.execute_in_process(run_config=quiet, instance=instance, tags={RANGE_START: keys[0], RANGE_END: keys[-1]})
        figures = clock.figures()
    events = sum(path.stat().st_size for path in home.rglob("*.db*"))
    return figures | {"event_log_bytes": events}


class _Clock:
    """Elapsed and processor time from its making on."""

    def __init__(self) -> None:
        self._started = _spent()

    def figures(self) -> dict[str, object]:
        now = _spent()
        spent = {what: now[what] - self._started[what] for what in ("seconds", "cpu_seconds")}
        return spent | {"import_seconds": self._started["seconds"] - _STARTED}


WAYS = {
    "dagster": through_dagster,
    "stages": through_stages,
    "run": through_run,
    "straight": straight,
    "straight, lazily": partial(straight, lazily=True),
}

if __name__ == "__main__":
    main()
