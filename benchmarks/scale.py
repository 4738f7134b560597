"""Ten thousand shards under real Dagster processes: ticks, backfills, pages, compared with the targets of the project.

    python -m benchmarks.scale --work build/scale --shards 10000 --json build/scale.json
    python -m benchmarks.scale --work build/scale --only sensor,nightly --storage sqlite

Shards are small, from a fixed seed. PostgreSQL, an S3 server, Dagster's code server, webserver and daemon run on
loopback and end with the script; what lies in the folder is deleted unless ``--keep`` is given. One measurement at a
time; the load of the machine stands beside each.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from benchmarks.scale_pages import pages
from benchmarks.scale_runs import arrivals, backfill, cost
from benchmarks.scale_s3 import s3
from benchmarks.scale_services import environment, postgres
from benchmarks.scale_ticks import many, nightly, report, sensor
from benchmarks.scale_world import INSTANCE_FILES, Figure, World

Measurement = Callable[[World], list[Figure]]
# In this order: measurements that need shards never materialized come before those that materialize them.
MEASUREMENTS: Final[Mapping[str, Measurement]] = MappingProxyType(
    {
        "sensor": sensor,
        "many": many,
        "backfill": backfill,
        "nightly": nightly,
        "s3": s3,
        "pages": pages,
        "report": report,
        "arrivals": arrivals,
        "cost": cost,
    }
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder to work in; must not exist, or be empty")
    parser.add_argument("--shards", type=int, default=10_000, help="registered shards (default 10000)")
    parser.add_argument("--storage", choices=sorted(INSTANCE_FILES), default="postgres", help="Dagster's storage")
    parser.add_argument("--only", help=f"measurements, with commas: {', '.join(MEASUREMENTS)} (default all)")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--keep", action="store_true", help="leave the folder as it is at the end")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",") if arguments.only else list(MEASUREMENTS)
    if unknown := set(chosen) - set(MEASUREMENTS):
        parser.error(f"no such measurement: {', '.join(sorted(unknown))}")
    if arguments.work.is_dir() and any(arguments.work.iterdir()):
        parser.error(f"{arguments.work} is not empty")
    work = arguments.work.resolve()
    signal.signal(signal.SIGTERM, end)
    results = []
    try:
        with ExitStack() as stack:
            if arguments.storage == "postgres":
                stack.enter_context(environment(stack.enter_context(postgres())))
            world = World(work, arguments.storage, arguments.shards)
            for name, measure in MEASUREMENTS.items():
                if name in chosen:
                    results.append(taken(name, measure, world))
                    print(table(results[-1:], heading=len(results) == 1), flush=True)
                    if arguments.json:
                        arguments.json.write_text(json.dumps(summary(arguments, results), indent=1))
    finally:
        if not arguments.keep:
            shutil.rmtree(work, ignore_errors=True)


def end(signal_number: int, _: object) -> None:
    """Exit so that all started processes end and the folder is deleted; further signals are ignored."""
    signal.signal(signal_number, signal.SIG_IGN)
    sys.exit("terminated")


def taken(name: str, measure: Measurement, world: World) -> dict[str, Any]:
    """The figures of one measurement, with the machine's load before and after it."""
    before, started = os.getloadavg()[0], time.perf_counter()
    figures = measure(world)
    return {
        "measurement": name,
        "about": (measure.__doc__ or "").splitlines()[0],
        "figures": figures,
        "load": (before, os.getloadavg()[0]),
        "seconds": time.perf_counter() - started,
    }


def summary(arguments: argparse.Namespace, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All results as JSON values."""
    return {
        "shards": arguments.shards,
        "storage": arguments.storage,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "results": [
            {**result, "figures": [{**figure._asdict(), "missed": figure.missed} for figure in result["figures"]]}
            for result in results
        ],
    }


def table(results: Sequence[Mapping[str, Any]], *, heading: bool = True) -> str:
    """Rows of Markdown, one for each figure."""
    lines = ["| | figure | value | target | load |", "|---|---|---|---|---|"] if heading else []
    for result in results:
        load = " → ".join(f"{value:.1f}" for value in result["load"])
        for figure in result["figures"]:
            target = "" if figure.target is None else f"< {figure.target:g}{' MISSED' if figure.missed else ''}"
            value = f"{figure.value:,.0f}" if figure.value >= 100 or not figure.unit else f"{figure.value:.3g}"
            lines.append(f"| {result['measurement']} | {figure.what} | {value} {figure.unit} | {target} | {load} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
