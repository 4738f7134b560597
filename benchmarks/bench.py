"""Times the four directions on data of the shape that the peer's pages publish: 80 shards, 6,818 samples, 9.9 GB.

``--scale`` takes a share of the shards. The readers, writers, contestants and the check of the outputs are those of
:mod:`benchmarks.io_directions`; here each direction gets its seconds, megabytes and samples a second.

    make bench SCALE=0.05
    python -m benchmarks.bench --scale 1 --work build/bench      # 30 GB of disk
"""

import argparse
import contextlib
import importlib.util
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.dataset import DatasetSize, ensure_dataset
from benchmarks.io_directions import (
    ASPECT_RATIO,
    DIRECTIONS,
    HERE,
    Result,
    asking,
    contestants_of,
    measure,
    parquet_inputs,
)
from benchmarks.output_check import expected
from benchmarks.workers import Worker

SHARDS, SAMPLES = 80, 6818
MEAN_PIXELS = 240_000
"""Two pictures of that size in each document make 1.45 MB a sample, and 9.9 GB in all."""
PEER_ENVIRONMENT = Path("build/peer/bin/python")
"""Where benchmarks/README.md puts the peer's environment."""
NAMES = {"wds": "tar", "parquet": "Parquet"}
CONTESTANTS = {"own": "this project", "peer": "peer", "peer eager": "peer, eager", "cp": "cp"}


def size_at(scale: float) -> DatasetSize:
    """The published shape with ``scale`` times its shards and samples, at least one of each."""
    shards = max(1, round(SHARDS * scale))
    samples, longer = divmod(max(shards, round(SAMPLES * scale)), shards)
    return DatasetSize(shards=shards, samples=samples, longer_shards=longer, mean_pixels=MEAN_PIXELS)


def find_peer(named: Path | None) -> Path | None:
    """The interpreter that has nemo-curator: the one named, that of this process, or that of its own environment."""
    if named or importlib.util.find_spec("nemo_curator"):
        return named or Path(sys.executable)
    return PEER_ENVIRONMENT if PEER_ENVIRONMENT.exists() else None


def lines_of(result: Result, megabytes: float, samples: int) -> list[str]:
    """A line of the table for each contestant of a direction.

    Args:
        result: with the timings of all rounds; their median counts.
        megabytes: of the inputs, 10⁶ bytes.
        samples: in the inputs.
    """
    source, target = result.direction.split("-")
    lines = []
    for name, heading in CONTESTANTS.items():
        if name in result.timings:
            seconds = statistics.median(result.seconds(name))
            cells = [
                f"{NAMES[source]} → {NAMES[target]}",
                heading,
                f"{seconds:.2f}",
                f"{megabytes / seconds:.0f}",
                f"{samples / seconds:.0f}" if name != "cp" else "",
                result.check.get(name, ""),
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the data where it is missing, run the directions and print the table."""
    parser = argparse.ArgumentParser(description="Time the four directions on the published shape.")
    parser.add_argument("--scale", type=float, default=0.05, help="share of the 80 shards; 1 needs 30 GB of disk")
    parser.add_argument("--work", type=Path, default=Path("build/bench"), help="folder for data and outputs")
    parser.add_argument("--rounds", type=int, default=1, help="timed rounds, after one that is not timed")
    parser.add_argument("--peer-python", type=Path, help="interpreter of an environment with nemo-curator 1.4.0")
    options = parser.parse_args(arguments)

    size = size_at(options.scale)
    folder = options.work.resolve() / f"shape-{size.shards}-shards-{SAMPLES * options.scale:.0f}-samples"
    tars = ensure_dataset(folder, "raw", size)
    samples = sum(map(size.samples_of, range(size.shards)))
    peer_python = find_peer(options.peer_python)
    truth = expected(tars, *ASPECT_RATIO)
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(Worker(sys.executable, HERE / "own_io.py"))
        peer = stack.enter_context(Worker(peer_python, HERE / "peer_io.py")) if peer_python else None
        parquets = parquet_inputs(asking(own, aspect_ratio=(0.0, 1e9)), tars, folder / "parquet")
        print(f"{size.shards} shards, {samples} samples, {megabytes_of(tars) / 1000:.2f} GB of tars", end=", ")
        print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
        print("| direction | by | seconds | MB/s | samples/s | output |\n|---|---|---|---|---|---|")
        for direction in DIRECTIONS:
            inputs = tars if direction.startswith("wds") else parquets
            result = Result("raw", direction)
            taking_part = contestants_of(direction, peer, own, "library")
            measure(result, inputs, taking_part, options.rounds, folder, truth)
            print("\n".join(lines_of(result, megabytes_of(inputs), samples)), flush=True)
    if peer is None:
        print("peer: not measured, nemo-curator is not installed (benchmarks/README.md, The peer's environment)")


def megabytes_of(paths: Sequence[Path]) -> float:
    """Their sizes together, in 10⁶ bytes."""
    return sum(path.stat().st_size for path in paths) / 1e6


if __name__ == "__main__":
    main()
