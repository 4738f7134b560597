"""Where nemo-curator 1.4.0 loses data, and the result of this project for the same input: one row for each claim.

    python -m benchmarks.peer_losses --peer-python peer-env/bin/python

Each side runs all cases in its own environment. Every documented option of the peer that might help
(``PEER_OPTIONS``) is tried on every case. Exit status 1 says that a claim did not hold, or that our side lost
something.
"""

import argparse
import importlib.util
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
    from benchmarks.peer_loss_inputs import Case, attempt
    from benchmarks.peer_loss_reading import READING
    from benchmarks.peer_loss_sides import PEER_OPTIONS, SIDES, PeerSide, Side

    def tried(case: Case, side: Side) -> tuple[bool, str]:
        with tempfile.TemporaryDirectory() as folder:
            outcome, failure = attempt(lambda: case(side, Path(folder)))
        lost, seen = outcome if outcome else (True, f"the case stopped: {failure}")
        return lost, seen.replace(f"{folder}/", "")

    outcomes: list[dict[str, str | bool]] = []
    for case in READING + FILTERING_AND_WRITING:
        lost, seen = tried(case, SIDES[name]())
        options = PEER_OPTIONS if name == "peer" and lost else ()
        best = next((option for option in options if not tried(case, PeerSide(option))[0]), None)
        avoided = f"{best.name} {best.depends}".strip() if best else ""
        depends = bool(best and best.depends)
        found = {"claim": case.__doc__ or "", "lost": lost, "seen": seen, "avoided": avoided, "depends": depends}
        outcomes.append(found)
    return outcomes


def ask_side(python: Path | str, name: str) -> list[dict[str, str | bool]]:
    """The outcomes of one side, run by its interpreter."""
    command = [str(python), "-W", "ignore", "-m", "benchmarks.peer_losses", "--side", name]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    answer = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, env=environment)
    if answer.returncode:
        sys.exit(f"the side {name!r} ended with status {answer.returncode}; see its messages above")
    return json.loads(answer.stdout.splitlines()[-1])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Reproduce where the peer loses data.")
    parser.add_argument("--peer-python", type=Path, help="interpreter of an environment with nemo-curator 1.4.0")
    parser.add_argument("--side", choices=("peer", "own"), help="run one side here and print JSON")
    options = parser.parse_args()
    if options.side == "peer" and importlib.util.find_spec("nemo_curator") is None:
        sys.exit("nemo-curator is not installed here: benchmarks/README.md says how to make its environment")
    if options.side:
        print(json.dumps(run_side(options.side)))
        return
    if not options.peer_python:
        parser.error("--peer-python is needed")
    peer, own = ask_side(options.peer_python, "peer"), ask_side(sys.executable, "own")
    print("| claim | nemo-curator 1.4.0 | avoided by | this project |\n|---|---|---|---|")
    for theirs, ours in zip(peer, own, strict=True):
        marks = ["lost" if side["lost"] else "kept" for side in (theirs, ours)]
        cells = (
            theirs["claim"],
            f"**{marks[0]}**: {theirs['seen']}",
            theirs["avoided"],
            f"**{marks[1]}**: {ours['seen']}",
        )
        print(f"| {' | '.join(map(str, cells))} |")
    held = sum(bool(row["lost"]) for row in peer)
    kept = sum(not row["lost"] for row in own)
    depend = sum(bool(row["depends"]) for row in peer)
    avoided = sum(bool(row["avoided"]) for row in peer) - depend
    print(
        f"\n{held} of {len(peer)} claims reproduced with its defaults; an option avoids {avoided}, and {depend} more "
        f"depending on the input: {held - avoided - depend} with its best options. This project keeps the data in "
        f"{kept} of {len(own)}."
    )
    sys.exit(held < len(peer) or kept < len(own))


if __name__ == "__main__":
    main()
