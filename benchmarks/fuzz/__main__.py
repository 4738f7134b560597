"""Run cases and print seed, counts and findings; exit code 1 where there is a finding."""

import argparse
import multiprocessing
import sys
import time
from collections import Counter

from benchmarks.fuzz.cases import KINDS, case
from benchmarks.fuzz.child import DATA_BYTES, SECONDS, Ended, run_alone
from benchmarks.fuzz.images import sound_images

_PROGRESS_EVERY = 1000


def run_numbered(task: tuple[int, int]) -> tuple[int, str, Ended, float]:
    """Number, kind, end and seconds of one case."""
    seed, number = task
    kind, work = case(seed, number)
    begin = time.monotonic()
    return number, kind, run_alone(work), time.monotonic() - begin


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kind", choices=KINDS, action="append", help="these kinds only")
    options = parser.parse_args(arguments)
    numbers = range(options.first, options.first + options.cases)
    chosen = [number for number in numbers if not options.kind or case(options.seed, number)[0] in options.kind]
    # made once, before the workers are forked
    sound_images()
    outcomes: Counter[tuple[str, str]] = Counter()
    findings: list[int] = []
    slowest = (0.0, 0)
    with multiprocessing.get_context("fork").Pool(options.workers) as pool:
        tasks = [(options.seed, number) for number in chosen]
        for done, (number, kind, ended, seconds) in enumerate(pool.imap_unordered(run_numbered, tasks, 10), 1):
            slowest = max(slowest, (seconds, number))
            outcomes[kind, ended.outcome if ended.passed else "FINDING"] += 1
            if not ended.passed:
                findings.append(number)
                print(f"FINDING: case {number} ({kind}): {ended.outcome}\n{ended.detail}", flush=True)
            if done % _PROGRESS_EVERY == 0:
                print(f"{done} cases, {len(findings)} findings", file=sys.stderr, flush=True)
    for (kind, outcome), count in sorted(outcomes.items()):
        print(f"{count:7} {kind}: {outcome}")
    ends = Counter[str]()
    for (_, outcome), count in outcomes.items():
        ends[next((name for name in ("read", "row error", "refused") if outcome.startswith(name)), outcome)] += count
    print(f"seed {options.seed}, {len(chosen)} cases, {DATA_BYTES // 2**30} GB and {SECONDS} s each: {dict(ends)}")
    print(f"slowest: case {slowest[1]}, {slowest[0]:.1f} s; findings: {sorted(findings)}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
