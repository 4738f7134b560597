"""Times the whole chain on MINT-1T-like shards: in Dagster, as bare stage functions, and the peer's pipeline.

Six shards of 85 documents (:mod:`benchmarks.dataset`), 400 MB raw or 107 MB as JPEG inside TIFF, CLIP off, default
settings. The contestants take turns, each turn in a fresh process, so that other work on the machine meets all of them;
only the work is timed, not the imports. The best turn of each counts.

    python -m benchmarks.chain --work build/bench --peer-python build/peer/bin/python

``--shards`` and ``--samples`` take other numbers. A shard of 128 MB has 162 documents of raw frames, 576 of JPEG inside
TIFF, 1,536 of plain JPEG members. The peer reads lazily, its default, and eagerly; the start of Ray is part of its
seconds, and named apart. ``--way`` takes one contestant of all, and may be repeated. ``stages, opencv`` detects QR
codes with OpenCV, as the peer does.

``referenced`` has ``storage.image_bytes = "referenced"``: its scores, ledgers and tars must be those of the others.
``run`` is ``interleaved run``; ``straight`` the library alone, with the scorers of the chain but no thumbnails.

``--before`` names a checkout of another state of this project: its turns are taken in between, under the same
benchmark, and the outputs of both must be equal byte for byte.
"""

import argparse
import compileall
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.dataset import FORMS, DatasetSize, ensure_dataset

REPOSITORY = Path(__file__).parents[1]
TARGET_SECONDS = {"raw": 6.0, "jpeg": 4.5}
"""Of the bare stage functions, on two quiet cores."""
TARGET_PEER = 5.0
PEER, PEER_EAGER, SAME_DETECTOR = "peer", "peer, eager", "stages, opencv"
TARGETS = {"dagster, referenced": 7.0, "run, referenced": 9.0}
"""Times that the peer takes, its start and all, for 10 shards of 128 MB."""
STRAIGHT, LAZILY = "straight", "straight, lazily"
"""The library alone, without records, checks and pictures."""
AT_MOST = (("dagster", "stages", 1.3), ("run, referenced", STRAIGHT, 1.5), (LAZILY, STRAIGHT, 1.0))
"""A way, another, and the most seconds that the first should take as a multiple of those of the second."""

Turn = Callable[[list[Path], Path], dict[str, Any]]
"""Takes the shards through the chain into a new folder; returns its figures."""


def own(way: str, checkout: Path, *more: str) -> Turn:
    """The chain of the project in ``checkout``, under this benchmark; ``more`` are arguments of the turn."""

    def run(tars: list[Path], work: Path) -> dict[str, Any]:
        script = REPOSITORY / "benchmarks" / "chain_turn.py"
        # -P: the folder of the script must not come before the checkout
        command = [sys.executable, "-P", str(script), way, "--raw", str(tars[0].parent), "--work", str(work), *more]
        return _answer(command, "", {**os.environ, "PYTHONPATH": str(checkout.resolve())})

    return run


def peer(python: Path, *, eager: bool) -> Turn:
    """The peer's pipeline with blur, QR and ratio filters on Ray Data."""

    def run(tars: list[Path], work: Path) -> dict[str, Any]:
        script = REPOSITORY / "benchmarks" / "peer_chain.py"
        request = {"inputs": [str(path) for path in tars], "output": str(work / "out"), "eager": eager}
        # Ray's workers are at niceness 15 by default, and would wait for all other work on the machine
        environment = {**os.environ, "RAY_worker_niceness": "0"}
        return _answer([str(python), str(script)], json.dumps(request), environment)

    return run


def _answer(command: list[str], request: str, environment: dict[str, str]) -> dict[str, Any]:
    started = time.perf_counter()
    done = subprocess.run(command, input=request, stdout=subprocess.PIPE, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with status {done.returncode}; see its messages above")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer | {"process_seconds": time.perf_counter() - started}


def content(folder: Path) -> str:
    """One hash of all outputs: names and bytes of Parquet files, ledgers and tars."""
    total = hashlib.sha256()
    for path in sorted(_outputs(folder)):
        total.update(f"{path.relative_to(folder)}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:16]


def _outputs(folder: Path) -> Iterator[Path]:
    for stored in ("image_scores", "document_scores", "sample_scores", "tars", "dropped"):
        yield from (path for path in (folder / stored).rglob("*") if path.is_file())


def measure(tars: list[Path], contestants: dict[str, Turn], rounds: int, work: Path) -> dict[str, dict[str, Any]]:
    """The best turn of each, by its seconds; inputs are in the page cache, and nothing waits to be written."""
    best: dict[str, dict[str, Any]] = {}
    contents: dict[str, str] = {}
    for number in range(rounds):
        for name, run in contestants.items():
            folder = work / "turn"
            shutil.rmtree(folder, ignore_errors=True)
            for tar in tars:
                tar.read_bytes()
            os.sync()
            figures = run(tars, folder) | {"load": os.getloadavg()[0]}
            if name not in (PEER, PEER_EAGER, SAME_DETECTOR, STRAIGHT, LAZILY):
                contents[name] = content(folder / "out")
            shutil.rmtree(folder)
            print(f"round {number + 1}, {name}: {json.dumps(figures)}", file=sys.stderr, flush=True)
            if name not in best or figures["seconds"] < best[name]["seconds"]:
                best[name] = figures
    if len(set(contents.values())) > 1:
        raise SystemExit(f"outputs differ: {contents}")
    for name, found in contents.items():
        best[name]["outputs"] = found
    return best


def table(form: str, best: dict[str, dict[str, Any]]) -> str:
    """The best turns as a Markdown table, and the ratios below it with their targets."""
    lines = [
        "| data | way | seconds | CPU seconds | MB read | MB written | peak MB | with imports | outputs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, figures in best.items():
        cpu = f"{figures['cpu_seconds']:.2f}" if "cpu_seconds" in figures else ""
        outputs = figures.get("outputs", "")
        seconds = f"{figures['seconds']:.2f}"
        if "start_seconds" in figures:
            seconds += f", of it Ray's start {figures['start_seconds']:.2f}"
        moved = " | ".join(
            f"{figures[what] / 1e6:,.0f}" if what in figures else ""
            for what in ("read_bytes", "written_bytes", "peak_bytes")
        )
        lines.append(
            f"| {form} | {name} | {seconds} | {cpu} | {moved} | {figures['process_seconds']:.2f} | {outputs} |"
        )
    lines += ["", *_by_stage(best), ""]
    seconds = {name: figures["seconds"] for name, figures in best.items()}
    if form in TARGET_SECONDS and "stages" in seconds:
        target = TARGET_SECONDS[form]
        lines.append(f"stages: {seconds['stages']:.2f} s; with 400 MB on two quiet cores, target {target} s")
    for name in (PEER, PEER_EAGER):
        if name in seconds:
            start = best[name]["start_seconds"]
            for way in (one for one in seconds if not one.startswith(PEER) and not one.endswith("before")):
                ratio, without = seconds[name] / seconds[way], (seconds[name] - start) / seconds[way]
                target = TARGETS.get(way, TARGET_PEER)
                whole = best[name]["process_seconds"] / best[way]["process_seconds"]
                others = f"without Ray's start {without:.1f}, with the imports of both {whole:.1f}"
                lines.append(f"{name} / {way}: {ratio:.1f}, target ≥ {target:g}; {others}")
    for way, than, target in AT_MOST:
        if {way, than} <= seconds.keys():
            lines.append(f"{way} / {than}: {seconds[way] / seconds[than]:.2f}, target ≤ {target:g}")
    for way in ("dagster", "stages"):
        if (before := f"{way}, before") in best:
            cpu = best[before]["cpu_seconds"] / best[way]["cpu_seconds"]
            lines.append(f"before / now, {way}: {seconds[before] / seconds[way]:.2f}, in CPU seconds {cpu:.2f}")
    return "\n".join(lines)


def _by_stage(best: dict[str, dict[str, Any]]) -> Iterator[str]:
    """A Markdown table of the stages of each way that has figures of them."""
    yield "| way | stage | seconds | CPU seconds | MB read | MB written |"
    yield "|---|---|---|---|---|---|"
    for way, figures in best.items():
        for stage, spent in figures.get("by_stage", {}).items():
            if isinstance(spent, dict):  # another state of this project may have seconds only
                seconds = f"{spent['seconds']:.2f} | {spent['cpu_seconds']:.2f}"
                sizes = f"{spent['read_bytes'] / 1e6:,.0f} | {spent['written_bytes'] / 1e6:,.0f}"
                yield f"| {way} | {stage} | {seconds} | {sizes} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for the data and the outputs, 3 GB")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contestant; the best counts")
    parser.add_argument("--form", choices=FORMS, action="append", help="only this form of the data")
    parser.add_argument("--shards", type=int, default=6, help="number of shards (default 6)")
    parser.add_argument("--samples", type=int, default=85, help="documents in each (default 85; 0.8 MB each as raw)")
    parser.add_argument("--way", action="append", help="only this contestant, such as 'run, referenced'")
    parser.add_argument("--peer-python", type=Path, help="interpreter of an environment with nemo-curator 1.4.0")
    parser.add_argument("--before", type=Path, help="checkout of another state of this project, to compare with")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    contestants = {"dagster": own("dagster", REPOSITORY), "stages": own("stages", REPOSITORY)}
    by_reference = ("--image-bytes", "referenced")
    contestants |= {f"{way}, referenced": own(way, REPOSITORY, *by_reference) for way in ("dagster", "stages", "run")}
    contestants |= {way: own(way, REPOSITORY) for way in (STRAIGHT, LAZILY)}
    if options.before:
        contestants |= {f"{way}, before": own(way, options.before) for way in ("dagster", "stages")}
    if options.peer_python:
        contestants[SAME_DETECTOR] = own("stages", REPOSITORY, "--qr-detector", "opencv")
        contestants |= {PEER: peer(options.peer_python, eager=False), PEER_EAGER: peer(options.peer_python, eager=True)}
    if unknown := set(options.way or ()) - contestants.keys():
        parser.error(f"--way {sorted(unknown)[0]}: the ways are {'; '.join(contestants)}")
    contestants = {way: turn for way, turn in contestants.items() if way in (options.way or contestants)}
    size = DatasetSize(shards=options.shards, samples=options.samples)
    found = {}
    for checkout in {REPOSITORY, options.before or REPOSITORY}:
        # as pip does for the peer; else each process may compile the modules anew
        compileall.compile_dir(checkout / "interleaved_assets", quiet=1)
    for form in options.form or FORMS:
        tars = ensure_dataset(size.folder(options.work), form, size)
        found[form] = measure(tars, contestants, options.rounds, options.work)
        print(table(form, found[form]), end="\n\n", flush=True)
    print(f"load {os.getloadavg()[0]:.1f}, {len(os.sched_getaffinity(0))} cores")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
