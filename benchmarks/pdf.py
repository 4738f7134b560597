"""PDF engines beside each other: order of the words of drawn pages, characters, pages a second, and memory.

``python -m benchmarks.pdf [FILE …]`` reads drawn pages and the files, or the report of the demo. ``--other PYTHON``
names the interpreter of an environment that has other engines (those that are missing are left out); some are AGPL, and
so no dependency. Each engine reads all files in one process, whose start is not measured. The order score is 1 less the
edit distance of the words over their number, as benchmarks of documents have it, with 1 for the right order.
"""

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, Final

Engine = Callable[[str], str]
"""Text of a file."""


def _ours() -> Engine:
    from interleaved_assets.io.pdf.reader import read_pdf
    from interleaved_assets.io.tar.reader import ReadOptions

    def text(path: str) -> str:
        tables = read_pdf(path, ReadOptions())
        return "\n\n".join(text for table in tables for text in table["text_content"].to_pylist() if text)

    return text


def _pdfium() -> Engine:
    import pypdfium2

    def text(path: str) -> str:
        document = pypdfium2.PdfDocument(path)
        return "\n\n".join(page.get_textpage().get_text_range() for page in document)

    return text


def _pdfplumber() -> Engine:
    import pdfplumber

    def text(path: str) -> str:
        with pdfplumber.open(path) as document:
            return "\n\n".join(page.extract_text() for page in document.pages)

    return text


def _edgeparse() -> Engine:
    import edgeparse

    return lambda path: str(edgeparse.convert(path, format="markdown"))


def _pdf_oxide() -> Engine:
    from pdf_oxide import PdfDocument

    def text(path: str) -> str:
        document = PdfDocument(path)
        return "\n\n".join(document.to_markdown(at) for at in range(document.page_count()))

    return text


def _liteparse() -> Engine:
    from liteparse import LiteParse

    parser = LiteParse(ocr_enabled=False, quiet=True, output_format="markdown", keep_headers_footers=True)
    return lambda path: str(parser.parse(path).text)


def _pymupdf4llm() -> Engine:
    import pymupdf4llm

    return lambda path: str(pymupdf4llm.to_markdown(path, show_progress=False))


def _docling() -> Engine:
    """Make the reader of docling's own parser: its layout needs a model, and without one it gives cells in order."""
    from docling_parse.pdf_parser import DoclingPdfParser

    parser = DoclingPdfParser(loglevel="fatal")

    def text(path: str) -> str:
        document = parser.load(path)
        pages = (page for _, page in document.iterate_pages())
        return "\n\n".join("\n".join(cell.text for cell in page.textline_cells) for page in pages)

    return text


ENGINES: Final[dict[str, Callable[[], Engine]]] = {
    "ours": _ours,
    "pdfium": _pdfium,
    "pdfplumber": _pdfplumber,
    "edgeparse": _edgeparse,
    "pdf-oxide": _pdf_oxide,
    "liteparse": _liteparse,
    "docling-parse": _docling,
    "pymupdf4llm": _pymupdf4llm,
}


def read_all(name: str, files: Sequence[str]) -> None:
    """Print for each file a line of JSON: its text and seconds, or its error; then the peak memory in MiB."""
    engine = ENGINES[name]()
    for path in files:
        started = time.perf_counter()
        try:
            found: dict[str, Any] = {"text": engine(path)}
        except Exception as error:  # noqa: BLE001  # of any engine
            found = {"error": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps({"path": path, "seconds": time.perf_counter() - started, **found}), flush=True)
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(json.dumps({"peak": peak // 1024}), flush=True)


def run(name: str, python: str, files: Sequence[str], seconds: float) -> tuple[dict[str, dict[str, Any]], int] | None:
    """Return what an engine gave for each file, and its peak memory; None if the environment lacks it."""
    command = [python, "-m", "benchmarks.pdf", "--read", name, *files]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        output, errors = done.stdout, done.stderr
    except subprocess.TimeoutExpired as error:
        output, errors = (error.stdout or b"").decode(), f"took more than {seconds:g} s"
    if "ModuleNotFoundError" in errors:
        return None
    lines = [json.loads(line) for line in output.splitlines() if line.startswith('{"')]
    peak = next((line["peak"] for line in lines if "peak" in line), 0)
    found = {line["path"]: line for line in lines if "path" in line}
    if len(found) < len(files):
        print(f"{name} ended early: {errors.strip()[-300:]}", file=sys.stderr)
    return found, peak


def order_score(found: str, expected: Sequence[str]) -> float:
    """Return 1 less the edit distance of the words over the number of the longer list."""
    known = set(expected)
    words = [word for word in re.findall("[a-z]+", found) if word in known]
    if words == expected:
        return 1.0
    row = list(range(len(expected) + 1))
    for at, word in enumerate(words, start=1):
        previous, row[0] = row[0], at
        for place, other in enumerate(expected, start=1):
            previous, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, previous + (word != other))
    return 1 - row[-1] / max(len(expected), len(words), 1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table of the order scores, and one of the files."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pdf", description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--other", metavar="PYTHON", action="append", default=[], help="interpreter with other engines")
    parser.add_argument("--engine", action="append", choices=ENGINES, help="only these")
    parser.add_argument("--seeds", type=int, default=3, help="pages of each kind and order")
    parser.add_argument("--seconds", type=float, default=300, help="limit of an engine")
    parser.add_argument("--read", choices=ENGINES, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.read:
        read_all(options.read, options.files)
        return
    # other environments lack what these need
    import numpy as np

    from benchmarks.pdf_pages import ORDERS, drawn_pages
    from interleaved_assets.demo.pdf_report import pdf_report

    with tempfile.TemporaryDirectory() as folder:
        drawn: dict[str, tuple[str, list[str]]] = {}
        for seed in range(options.seeds):
            for page in drawn_pages(seed):
                for order in ORDERS:
                    path = Path(folder) / f"{page.name}-{order}-{seed}.pdf"
                    path.write_bytes(page.pdf(order))
                    drawn[str(path)] = f"{page.name}, {order}", page.words()
        if not options.files:
            report = Path(folder) / "report.pdf"
            report.write_bytes(pdf_report(np.random.default_rng(1)))
            options.files = [str(report)]
        scores: dict[str, dict[str, list[float]]] = {}
        files: dict[str, tuple[dict[str, dict[str, Any]], int]] = {}
        for name in options.engine or ENGINES:
            for python in [sys.executable, *options.other]:
                measured = run(name, python, [*drawn], options.seconds)
                if measured is None:
                    continue
                scores[name] = defaultdict(list)
                for path, (kind, words) in drawn.items():
                    scores[name][kind].append(order_score(measured[0].get(path, {}).get("text", ""), words))
                if real := run(name, python, options.files, options.seconds):
                    files[name] = real
                break
        _print_scores(scores)
        _print_files(files, options.files)


def _print_scores(scores: dict[str, dict[str, list[float]]]) -> None:
    print(f"| words in order | {' | '.join(scores)} |\n|---|{'---|' * len(scores)}")
    kinds = next(iter(scores.values()))
    for kind in kinds:
        print(f"| {kind} | {' | '.join(f'{mean(found[kind]):.2f}' for found in scores.values())} |")
    means = (mean(score for kind in found.values() for score in kind) for found in scores.values())
    print(f"| all | {' | '.join(f'{each:.3f}' for each in means)} |\n")


def _print_files(files: dict[str, tuple[dict[str, dict[str, Any]], int]], paths: Sequence[str]) -> None:
    import pypdfium2

    print(f"| characters; pages a second | pages | {' | '.join(files)} |\n|---|---|{'---|' * len(files)}")
    total, read = dict.fromkeys(files, 0.0), dict.fromkeys(files, 0)
    for path in paths:
        try:
            pages = len(pypdfium2.PdfDocument(path))
        except pypdfium2.PdfiumError:
            pages = 0
        cells = []
        for name, (found, _) in files.items():
            one = found.get(path, {"error": "not read"})
            if "error" in one:
                cells.append(one["error"].split(":")[0])
                continue
            total[name] += one["seconds"]
            read[name] += pages
            cells.append(f"{len(one['text'])}; {pages / one['seconds']:.1f}")
        print(f"| {Path(path).name} | {pages} | {' | '.join(cells)} |")
    print(f"| all | | {' | '.join(f'{read[name] / max(total[name], 1e-9):.1f}' for name in files)} |")
    print(f"| peak memory, MiB | | {' | '.join(str(peak) for _, peak in files.values())} |")


if __name__ == "__main__":
    main()
