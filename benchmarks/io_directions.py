"""Times the four directions, WebDataset and Parquet to either, against nemo-curator 1.4.0 and against ``cp``.

Every direction reads six shards of 85 documents, drops the images whose aspect ratio is outside 1.0 to 2.0 and writes
the rest with all their bytes. The contestants take turns within every round, in processes that stay up; only the work
is timed. The page cache is warm, outputs are deleted after each timing and the disk is left to settle before the next.
With ``--fresh`` each turn has a new process, and so what it imports late and allocates first; ``--parquet-of peer``
reads the other library's Parquet files, compressed with Snappy. ``--shards`` and ``--samples`` take other numbers: a
shard of 128 MB has 162 documents of raw frames, 576 of JPEG inside TIFF and 1,536 of JPEG members.

    python -m benchmarks.io_directions --peer-python peer-env/bin/python --work build/bench --json build/bench/io.json
"""

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from benchmarks.dataset import FORMS, DatasetSize, Form, ensure_dataset
from benchmarks.output_check import Written, expected, written
from benchmarks.workers import Worker

HERE = Path(__file__).parent
ASPECT_RATIO = (1.0, 2.0)
DIRECTIONS = ("wds-parquet", "wds-wds", "parquet-wds", "parquet-parquet")
TARGETS = {
    ("raw", "wds-parquet"): 3.0,
    ("raw", "wds-wds"): 3.0,
    ("raw", "parquet-wds"): 3.0,
    ("raw", "parquet-parquet"): 2.0,
    ("jpeg", "wds-parquet"): 8.0,
    ("jpeg", "wds-wds"): 8.0,
    ("jpeg", "parquet-wds"): 5.0,
}


class Timing(NamedTuple):
    """Elapsed seconds and CPU seconds of one run."""

    seconds: float
    cpu_seconds: float


Contestant = Callable[[str, list[Path], Path], Timing]
"""Converts the inputs of one direction into a new folder."""


@dataclass
class Result:
    """Timings of one direction on one form of the data, by contestant."""

    form: Form
    direction: str
    timings: dict[str, list[Timing]] = field(default_factory=dict)
    check: dict[str, str] = field(default_factory=dict)

    def seconds(self, contestant: str) -> list[float]:
        """Elapsed seconds of a contestant."""
        return [timing.seconds for timing in self.timings[contestant]]

    def ratios(self) -> dict[str, float]:
        """Our speed relative to the peer with defaults, and to the faster of its settings.

        The third is the faster setting's processor time over ours, which says more on a machine with other work.
        """
        median = {name: statistics.median(self.seconds(name)) for name in self.timings}
        cpu = {name: statistics.median(time.cpu_seconds for time in times) for name, times in self.timings.items()}
        best = min((name for name in self.timings if name.startswith("peer")), key=median.__getitem__)
        return {
            "peer": median["peer"] / median["own"],
            "peer_best": median[best] / median["own"],
            "cpu": cpu[best] / cpu["own"],
        }


def copy(_direction: str, inputs: list[Path], output: Path) -> Timing:
    """``cp`` of the inputs: the lower bound for every direction."""
    output.mkdir(parents=True)
    started, before = time.perf_counter(), os.times()
    subprocess.run(["cp", "--reflink=never", *map(str, inputs), str(output)], check=True)
    after = os.times()
    cpu_seconds = sum(after[2:4]) - sum(before[2:4])  # of children, user and system
    return Timing(time.perf_counter() - started, cpu_seconds)


def asking(worker: Worker, *, fresh: bool = False, **extra: object) -> Contestant:
    """A contestant that a worker runs, or if ``fresh`` a new process like it; with extra fields in each request."""

    def run(direction: str, inputs: list[Path], output: Path) -> Timing:
        request = {"direction": direction, "inputs": [str(path) for path in inputs], "output": str(output)}
        with worker.another() if fresh else contextlib.nullcontext(worker) as asked:
            return Timing(**asked.ask(**{"aspect_ratio": ASPECT_RATIO} | request | extra))

    return run


def contestants_of(
    direction: str, peer: Worker | None, own: Worker | None, way: str, *, fresh: bool = False
) -> dict[str, Contestant]:
    """The contestants of a direction, in the order of their runs."""
    taking_part: dict[str, Contestant] = {"cp": copy}
    if peer:
        taking_part["peer"] = asking(peer, fresh=fresh)
        if direction.startswith("wds"):
            taking_part["peer eager"] = asking(peer, fresh=fresh, materialize_on_read=True)
    if own:
        taking_part["own"] = asking(own, fresh=fresh, way=way)
    return taking_part


def turn(run: Contestant, direction: str, inputs: list[Path], output: Path, inspect: Callable[[Path], None]) -> Timing:
    """One timing: with the input in the page cache, without dirty pages; the output is deleted afterwards."""
    shutil.rmtree(output, ignore_errors=True)
    for path in inputs:
        with path.open("rb", buffering=0) as stream:
            while stream.read(1 << 22):
                pass
    os.sync()
    timing = run(direction, inputs, output)
    inspect(output)
    shutil.rmtree(output)
    return timing


def measure(
    result: Result, inputs: list[Path], taking_part: dict[str, Contestant], rounds: int, work: Path, truth: Written
) -> None:
    """All rounds of one direction. The first is a warm-up: its outputs are checked, its times discarded."""
    direction, target = result.direction, result.direction.split("-")[1]
    result.timings = {name: [] for name in taking_part}
    for number in range(rounds + 1):
        for name, run in taking_part.items():

            def inspect(folder: Path, name: str = name, rehearsal: bool = number == 0) -> None:
                if rehearsal and name != "cp":
                    result.check[name] = compare(written(folder, target), truth)

            timing = turn(run, direction, inputs, work / "output", inspect)
            if number:
                result.timings[name].append(timing)


def compare(found: Written, truth: Written) -> str:
    """A phrase on how an output differs from the expected content."""
    if found == truth:
        return "exact"
    parts = [
        f"{name} {getattr(found, name)} of {getattr(truth, name)}"
        for name in ("samples", "texts", "images")
        if getattr(found, name) != getattr(truth, name)
    ]
    changed = (truth.pixels - found.pixels).total()
    return "; ".join([*parts, f"{changed} images changed"])


def parquet_inputs(maker: Contestant, tars: list[Path], folder: Path) -> list[Path]:
    """The Parquet form of ``tars``, made by one contestant's reader and writer and read by all."""
    if not folder.exists():
        unfinished = folder.with_name(folder.name + ".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        maker("wds-parquet", tars, unfinished)
        unfinished.rename(folder)
    return sorted(folder.glob("*.parquet"))


def table(results: list[Result]) -> str:
    """The results as a Markdown table; seconds are medians, with minimum and maximum in brackets."""
    head = [
        "data",
        "direction",
        "cp",
        "peer",
        "peer, eager",
        "own",
        "× peer",
        "× its best",
        "× its CPU",
        "target",
        "outputs",
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for result in results:
        cells = [result.form, result.direction.replace("-", " → ")]
        for name in ("cp", "peer", "peer eager", "own"):
            times = result.seconds(name) if name in result.timings else None
            cells.append(f"{statistics.median(times):.2f} ({min(times):.2f}–{max(times):.2f})" if times else "")
        has_both = {"peer", "own"} <= result.timings.keys()
        cells += [f"{ratio:.1f}" for ratio in result.ratios().values()] if has_both else [""] * 3
        target = TARGETS.get((result.form, result.direction))
        cells.append(f"≥ {target:g}" if target else "")
        cells.append(", ".join(f"{name}: {check}" for name, check in result.check.items()))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run what the command line asks for, print the table and write the JSON."""
    parser = argparse.ArgumentParser(description="Time the four directions against nemo-curator.")
    parser.add_argument("--peer-python", type=Path, help="interpreter of an environment with nemo-curator 1.4.0")
    parser.add_argument("--work", type=Path, required=True, help="folder for the data and the outputs, 3 GB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--form", choices=FORMS, action="append", help="only this form of the data")
    parser.add_argument("--shards", type=int, default=6, help="number of shards (default 6)")
    parser.add_argument("--samples", type=int, default=85, help="documents in each (default 85; 0.8 MB each as raw)")
    parser.add_argument("--direction", choices=DIRECTIONS, action="append", help="only this direction")
    parser.add_argument("--no-own", action="store_true", help="measure the peer and cp alone")
    parser.add_argument("--fresh", action="store_true", help="each turn in a new process, without its imports")
    parser.add_argument("--parquet-of", choices=("own", "peer"), default="own", help="side that writes Parquet inputs")
    parser.add_argument("--way", choices=("library", "pipeline"), default="library", help="how our side is called")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()

    size = DatasetSize(shards=options.shards, samples=options.samples)
    work = size.folder(options.work.resolve())
    started_load = os.getloadavg()
    results = []
    with contextlib.ExitStack() as stack:
        peer = own = None
        if options.peer_python:
            peer = stack.enter_context(Worker(options.peer_python, HERE / "peer_io.py"))
        if not options.no_own:
            own = stack.enter_context(Worker(sys.executable, HERE / "own_io.py"))
        for form in options.form or FORMS:
            tars = ensure_dataset(work, form, size)
            truth = expected(tars, *ASPECT_RATIO)
            maker = asking({"own": own, "peer": peer}[options.parquet_of] or peer, aspect_ratio=(0.0, 1e9))
            made_by = options.parquet_of if own else "peer"
            parquets = parquet_inputs(maker, tars, work / f"{tars[0].parent.name}-parquet-{made_by}")
            for direction in options.direction or DIRECTIONS:
                inputs = tars if direction.startswith("wds") else parquets
                result = Result(form, direction)
                contestants = contestants_of(direction, peer, own, options.way, fresh=options.fresh)
                measure(result, inputs, contestants, options.rounds, work, truth)
                results.append(result)
                print(table([result]).splitlines()[-1], file=sys.stderr, flush=True)
        environment = {
            "cpus": len(os.sched_getaffinity(0)),
            "machine": platform.machine(),
            "load_before": started_load,
            "load_after": os.getloadavg(),
            "peer": peer.versions if peer else None,
            "own": own.versions if own else None,
            "rounds": options.rounds,
        }
    print(table(results))
    print(json.dumps(environment))
    if options.json:
        figures = [vars(result) | {"ratios": result.ratios() if peer and own else None} for result in results]
        options.json.write_text(json.dumps({"environment": environment, "results": figures}, indent=1))


if __name__ == "__main__":
    main()
