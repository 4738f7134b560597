"""A worker that runs the four directions with this project; requests and answers as in ``peer_io.py``.

``library`` is what a user writes: reader, scores, selection, writer. ``pipeline`` is what the assets do: shard by
shard, in bounded batches, the hash of every output taken while it is written.
"""

import contextlib
import itertools
import json
import platform
import sys
import time
from collections.abc import Callable, Generator
from importlib.metadata import version
from pathlib import Path

import pandas as pd  # noqa: F401  pyarrow imports it with the first array that it makes of Python values
import pyarrow as pa

from interleaved_assets.io.parquet.reader import InterleavedParquetReader, read_parquet_shard
from interleaved_assets.io.parquet.writer import InterleavedParquetWriter, parquet_shard
from interleaved_assets.io.rows.batches import prefetch
from interleaved_assets.io.tar.reader import InterleavedWebdatasetReader, read_tar_shard
from interleaved_assets.io.tar.writer import InterleavedWebdatasetWriter, tar_shard
from interleaved_assets.model.rows import filter_rows
from interleaved_assets.scoring.protocol.score import score_images
from interleaved_assets.scoring.protocol.settings import ScoringSettings
from interleaved_assets.selection.batch import filter_batch, selection_rows
from interleaved_assets.selection.judge import select
from interleaved_assets.selection.settings import SelectionSettings

PIPELINE_BATCH_BYTES = 64 * 2**20
SIZES_ONLY = ScoringSettings(scorers=())  # what the aspect ratio needs stands in the header


def library(request: dict, settings: SelectionSettings) -> None:
    """Every input through the public readers and writers."""
    source, target = request["direction"].split("-")
    reader = (
        InterleavedWebdatasetReader(request["inputs"], materialize_on_read=True)
        if source == "wds"
        else InterleavedParquetReader(request["inputs"])
    )
    writer = (InterleavedWebdatasetWriter if target == "wds" else InterleavedParquetWriter)(request["output"])
    for batch in reader:
        kept, _ledger = filter_batch(batch, settings, SIZES_ONLY)
        writer.write(kept)


def pipeline(request: dict, settings: SelectionSettings) -> None:
    """Every input as in the assets: one output file each, with its hash."""
    source, target = request["direction"].split("-")
    for uri in request["inputs"]:
        output = str(Path(request["output"]) / f"{Path(uri).stem}.{'tar' if target == 'wds' else 'parquet'}")
        with contextlib.closing(read_shard(source, uri)) as tables:
            first = next(tables)
            shard = tar_shard(output) if target == "wds" else parquet_shard(output, first.schema)
            with shard as file:
                for rows in itertools.chain([first], tables):
                    scores = score_images(rows, SIZES_ONLY)
                    file.write(filter_rows(rows, select(selection_rows(rows), scores, settings).keep))


def read_shard(source: str, uri: str) -> Generator[pa.Table, None, None]:
    """Batches of one shard."""
    if source == "wds":
        return read_tar_shard(uri, max_batch_bytes=PIPELINE_BATCH_BYTES, materialize=True)
    return prefetch(read_parquet_shard(uri, max_batch_bytes=PIPELINE_BATCH_BYTES))


WAYS: dict[str, Callable[[dict, SelectionSettings], None]] = {"library": library, "pipeline": pipeline}


def main() -> None:
    """Answer requests until standard input ends."""
    packages = ("interleaved-assets", "pyarrow", "pillow", "numpy")
    versions = {"python": platform.python_version()} | {name: version(name) for name in packages}
    print(json.dumps({"versions": versions}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        low, high = request["aspect_ratio"]
        settings = SelectionSettings(order=("aspect",), min_aspect_ratio=low or None, max_aspect_ratio=high)
        Path(request["output"]).mkdir(parents=True)
        started, cpu_started = time.perf_counter(), time.process_time()
        WAYS[request.get("way", "library")](request, settings)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
        print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds}), flush=True)


if __name__ == "__main__":
    main()
