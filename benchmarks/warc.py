"""Main content of web pages and speed of reading web archives.

``python -m benchmarks.warc`` reads an archive of drawn pages and prints pages and MB of HTML a second: in one process,
and in several at a time as shards of a run are. ``--pages FOLDER`` takes pages of the form of WCXB instead:
``html/<id>.html.gz`` and ``ground-truth/<id>.json``. Then it also compares the words of the main content with those
that people marked (precision, recall and F1 of the bag of words, the mean over pages, as WCXB's ``evaluate.py`` has
them), beside trafilatura and resiliparse where they are installed. ``--at-most KB`` leaves larger pages out of the
measurement of speed, whose mean a few very large ones decide.
"""

import argparse
import gzip
import json
import random
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.io.warc.html import decode_html
from interleaved_assets.io.warc.main_content import choose_main
from interleaved_assets.io.warc.page import parse_page
from interleaved_assets.io.warc.reader import read_warc
from interleaved_assets_tests.io.warcs import page, write_warc

Extract = Callable[[str, str], str]
"""Returns the main content of HTML; the second argument is its address."""
Scores = tuple[float, float, float]
"""Precision, recall and F1, each from 0 to 1."""


class MarkedPage(NamedTuple):
    """A page, its address, its type, and the text that people marked as its main content."""

    html: bytes
    url: str
    kind: str
    content: str


def marked_pages(folder: Path) -> list[MarkedPage]:
    """Return the pages below ``folder``, in the order of their names."""
    pages = []
    for path in sorted((folder / "html").glob("*.html.gz")):
        truth = json.loads((folder / "ground-truth" / f"{path.name.removesuffix('.html.gz')}.json").read_text("utf-8"))
        kind = truth.get("_internal", {}).get("page_type", {}).get("primary", "article")
        content = truth["ground_truth"].get("main_content") or ""
        pages.append(MarkedPage(gzip.decompress(path.read_bytes()), truth["url"], kind, content))
    return pages


def drawn_pages(count: int) -> list[MarkedPage]:
    """Return pages of about 50 KB, the size of a typical page: paragraphs, links, images and a menu."""
    dice = random.Random(27)
    words = ["".join(dice.choices("abcdefghij", k=dice.randint(2, 9))) for _ in range(2000)]
    pages = []
    for number in range(count):
        menu = "".join(f"<li class='item'><a href='/{at}' class='link'>{words[at]}</a></li>" for at in range(100))
        parts = []
        for at in range(60):
            text = " ".join(dice.choices(words, k=90))
            parts.append(f"<div class='block text-{at}'><p>{text} <a href='/{at}'>more</a> <b>of</b> it.</p></div>")
        text = "\n".join(parts)
        html = f"<html><body><nav><ul>{menu}</ul></nav><main>{text}<img src='/a.png'></main></body></html>"
        pages.append(MarkedPage(html.encode(), f"https://a.example/{number}", "drawn", ""))
    return pages


def extract_own(html: str, url: str) -> str:
    """The texts that the reader of web archives takes."""
    return "\n".join(block.text for block in choose_main(parse_page(html.encode(), url))[0])


def others() -> dict[str, Extract]:
    """Other extractors that are installed, with comments and tables as they have them by default."""
    found: dict[str, Extract] = {}
    if find_spec("trafilatura"):
        import trafilatura

        found["trafilatura"] = lambda html, _url: trafilatura.extract(html) or ""
    if find_spec("resiliparse"):
        from resiliparse.extract.html2text import extract_plain_text

        found["resiliparse"] = lambda html, _url: extract_plain_text(html, main_content=True)
    return found


def word_scores(found: str, marked: str) -> Scores:
    """Precision, recall and F1 of the words of ``found``, each as often as it occurs."""
    ours, theirs = (re.findall(r"\w+", text.lower()) for text in (found, marked))
    if not ours or not theirs:
        return (1.0, 1.0, 1.0) if not ours and not theirs else (0.0, 0.0, 0.0)
    both = (Counter(ours) & Counter(theirs)).total()
    precision, recall = both / len(ours), both / len(theirs)
    return precision, recall, 2 * precision * recall / (precision + recall) if both else 0.0


def mean(scores: Sequence[Scores]) -> str:
    """Return the cells of a row."""
    return " | ".join(f"{sum(column) / len(scores):.3f}" for column in zip(*scores, strict=True))


def compare(pages: Sequence[MarkedPage]) -> None:
    """Print how well each extractor finds the main content, and its speed in one process."""
    texts = [decode_html(one.html, None).html.decode() for one in pages]
    print("| extractor | pages | precision | recall | F1 | pages per CPU second |")
    print("|---|---|---|---|---|---|")
    by_kind: Mapping[str, list[Scores]] = defaultdict(list)
    for name, extract in {"interleaved-assets": extract_own, **others()}.items():
        began = time.process_time()
        found = [extract(text, one.url) for text, one in zip(texts, pages, strict=True)]
        seconds = time.process_time() - began
        scores = [word_scores(text, one.content) for text, one in zip(found, pages, strict=True)]
        print(f"| {name} | {len(pages)} | {mean(scores)} | {len(pages) / seconds:.0f} |")
        if extract is extract_own:
            for one, score in zip(pages, scores, strict=True):
                by_kind[one.kind].append(score)
    for kind, of_kind in sorted(by_kind.items()):
        print(f"| {kind}, interleaved-assets | {len(of_kind)} | {mean(of_kind)} | |")


def read(uri: str) -> int:
    """Return the number of rows of an archive."""
    options = ReadOptions(max_batch_bytes=128 * 2**20)
    return sum(table.num_rows for table in read_warc(uri, options))


def measure(pages: Sequence[MarkedPage], processes: Sequence[int]) -> None:
    """Print the speed of reading an archive of ``pages`` in each number of processes at a time, an archive each."""
    size = sum(len(one.html) for one in pages)
    print(f"{len(pages)} pages, mean {size / len(pages) / 1000:.0f} KB of HTML")
    print("| processes | pages a second | MB of HTML a second |")
    print("|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        uri = write_warc(
            Path(folder, "a.warc.gz"), [page(one.url, one.html, content_type="text/html") for one in pages]
        )
        for count in processes:
            with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
                list(pool.map(read, [uri] * count))  # each process has started, and loaded the package
                began = time.perf_counter()
                rows = list(pool.map(read, [uri] * count))
                seconds = time.perf_counter() - began
            assert len(rows) == count
            rate = count * len(pages) / seconds
            print(f"| {count} | {rate:.0f} | {rate * size / len(pages) / 1e6:.1f} |")


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.warc", description=__doc__)
    parser.add_argument("--pages", type=Path, help="a folder of pages with their main content")
    parser.add_argument("--count", type=int, default=1000, help="number of drawn pages")
    parser.add_argument("--at-most", type=float, metavar="KB", help="size of the largest page whose reading is timed")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    if options.pages is None:
        pages = drawn_pages(options.count)
    else:
        pages = marked_pages(options.pages)
        compare(pages)
    if options.at_most is not None:
        pages = [one for one in pages if len(one.html) <= options.at_most * 1000]
    measure(pages, options.processes)


if __name__ == "__main__":
    main()
