"""Speed of reading PDF files: pages a second, with the start of the process that parses each file.

``python -m benchmarks.pdf [FILE …]`` reads the files, or a drawn report. ``--other PYTHON`` names the interpreter of an
environment that has pymupdf4llm (AGPL, and so no dependency), which then reads the same files.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from interleaved_assets.demo.pdf_report import pdf_report
from interleaved_assets.io.pdf.reader import read_pdf
from interleaved_assets.io.pdf.settings import PdfSettings
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.model.errors import InterleavedError

_OTHER = """
import json, sys, time
import pymupdf4llm
started = time.perf_counter()
text = pymupdf4llm.to_markdown(sys.argv[1], show_progress=False)
print(json.dumps([time.perf_counter() - started, len(text)]))
"""


def ours(path: Path) -> tuple[int, int, float]:
    """Return pages, characters of text, and seconds."""
    started = time.perf_counter()
    rows = [row for table in read_pdf(str(path), ReadOptions(), PdfSettings()) for row in table.to_pylist()]
    seconds = time.perf_counter() - started
    return rows[0]["pages"], sum(len(row["text_content"] or "") for row in rows), seconds


def other(python: str) -> Callable[[Path], tuple[float, int]]:
    """Return a function that gives the seconds and characters of pymupdf4llm, without the start of its process."""

    def measure(path: Path) -> tuple[float, int]:
        done = subprocess.run([python, "-c", _OTHER, str(path)], capture_output=True, text=True, check=True)
        seconds, characters = json.loads(done.stdout.splitlines()[-1])
        return seconds, characters

    return measure


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table with a row for each file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pdf", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--other", metavar="PYTHON", help="interpreter that has pymupdf4llm")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        drawn = Path(folder) / "report.pdf"
        drawn.write_bytes(pdf_report(np.random.default_rng(1)))
        print("| file | pages | characters | pages a second | pymupdf4llm: characters | pages a second |")
        print("|---|---|---|---|---|---|")
        for path in options.files or [drawn]:
            try:
                pages, characters, seconds = ours(path)
            except InterleavedError as error:
                print(f"{path.name}: {error}", file=sys.stderr)
                continue
            row = [path.name, str(pages), str(characters), f"{pages / seconds:.1f}"]
            if options.other:
                other_seconds, found = other(options.other)(path)
                row += [str(found), f"{pages / other_seconds:.1f}"]
            print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
