"""Run cases and print seed, counts and findings; exit code 1 where there is a finding."""

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Sequence

from benchmarks.fuzz.cases import KINDS, case
from benchmarks.fuzz.child import DATA_BYTES, PASSED, SECONDS, Ended, run_in_children
from benchmarks.fuzz.image_checks import load_models
from benchmarks.fuzz.images import sound_images

_CASES_A_CHILD = 25
_PROGRESS_EVERY = 500


def run_numbers(task: tuple[int, Sequence[int], float]) -> list[tuple[int, str, Ended]]:
    """Number, kind and end of each case of a child; none where it is too late."""
    seed, numbers, stop = task
    if time.monotonic() > stop:
        return []
    kinds, works = zip(*(case(seed, number) for number in numbers), strict=True)
    return list(zip(numbers, kinds, run_in_children(works), strict=True))


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kind", choices=KINDS, action="append", help="of these cases, those of this kind only")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop then; counted is what has run")
    options = parser.parse_args(arguments)
    stop = time.monotonic() + 60 * options.minutes
    numbers = range(options.first, options.first + options.cases)
    chosen = [number for number in numbers if not options.kind or case(options.seed, number)[0] in options.kind]
    tasks = [
        (options.seed, chosen[first : first + _CASES_A_CHILD], stop) for first in range(0, len(chosen), _CASES_A_CHILD)
    ]
    # made once, before the workers are forked
    sound_images()
    if any(case(options.seed, number)[0] == "image" for number in chosen):
        load_models()
    outcomes: Counter[tuple[str, str]] = Counter()
    findings: list[int] = []
    slowest = (0.0, 0)
    done = 0
    with multiprocessing.get_context("fork").Pool(options.workers) as pool:
        for ends in pool.imap_unordered(run_numbers, tasks):
            for number, kind, ended in ends:
                slowest = max(slowest, (ended.seconds, number))
                outcomes[kind, ended.outcome if ended.passed else "FINDING"] += 1
                if not ended.passed:
                    findings.append(number)
                    print(f"FINDING: case {number} ({kind}): {ended.outcome}\n{ended.detail}", flush=True)
                done += 1
                if done % _PROGRESS_EVERY == 0:
                    print(f"{done} cases, {len(findings)} findings", file=sys.stderr, flush=True)
    for (kind, outcome), count in sorted(outcomes.items()):
        print(f"{count:7} {kind}: {outcome}")
    print(f"seed {options.seed}, {done} cases, {DATA_BYTES // 2**30} GB and {SECONDS} s of processor time each:")
    for end in (*PASSED, "FINDING"):
        print(f"{sum(count for (_, outcome), count in outcomes.items() if outcome.startswith(end)):7} {end}")
    print(f"slowest: case {slowest[1]}, {slowest[0]:.1f} s; findings: {sorted(findings)}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
