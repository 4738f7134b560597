"""Where nemo-curator 1.4.0 loses data, and the result of this project for the same input: one row for each claim.

    python -m benchmarks.peer_losses --peer-python peer-env/bin/python

Each side runs all cases in its own environment. Exit status 1 says that a claim did not hold, or that our side lost
something.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run_side(name: str) -> list[dict[str, str | bool]]:
    """All cases with the library that this interpreter has."""
    from benchmarks.peer_loss_filtering import FILTERING_AND_WRITING
    from benchmarks.peer_loss_inputs import attempt
    from benchmarks.peer_loss_reading import READING
    from benchmarks.peer_loss_sides import SIDES

    outcomes: list[dict[str, str | bool]] = []
    for case in READING + FILTERING_AND_WRITING:
        with tempfile.TemporaryDirectory() as folder:
            outcome, failure = attempt(lambda case=case, folder=folder: case(SIDES[name](), Path(folder)))
        lost, seen = outcome if outcome else (True, f"the case stopped: {failure}")
        outcomes.append({"claim": case.__doc__ or "", "lost": lost, "seen": seen.replace(f"{folder}/", "")})
    return outcomes


def ask_side(python: Path | str, name: str) -> list[dict[str, str | bool]]:
    """The outcomes of one side, run by its interpreter."""
    command = [str(python), "-W", "ignore", "-m", "benchmarks.peer_losses", "--side", name]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    answer = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, env=environment)
    return json.loads(answer.stdout.splitlines()[-1])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Reproduce where the peer loses data.")
    parser.add_argument("--peer-python", type=Path, help="interpreter of an environment with nemo-curator 1.4.0")
    parser.add_argument("--side", choices=("peer", "own"), help="run one side here and print JSON")
    options = parser.parse_args()
    if options.side:
        print(json.dumps(run_side(options.side)))
        return
    if not options.peer_python:
        parser.error("--peer-python is needed")
    peer, own = ask_side(options.peer_python, "peer"), ask_side(sys.executable, "own")
    print("| claim | nemo-curator 1.4.0 | this project |\n|---|---|---|")
    for theirs, ours in zip(peer, own, strict=True):
        marks = ["lost" if side["lost"] else "kept" for side in (theirs, ours)]
        print(f"| {theirs['claim']} | **{marks[0]}**: {theirs['seen']} | **{marks[1]}**: {ours['seen']} |")
    held = sum(bool(row["lost"]) for row in peer)
    kept = sum(not row["lost"] for row in own)
    print(f"\n{held} of {len(peer)} claims reproduced; this project keeps the data in {kept} of {len(own)}.")
    sys.exit(held < len(peer) or kept < len(own))


if __name__ == "__main__":
    main()
