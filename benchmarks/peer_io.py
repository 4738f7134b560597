"""A worker that runs the four directions with nemo-curator 1.4.0; it runs in that package's environment.

One JSON request a line on standard input, one JSON answer a line on standard output. The stages are called one after
another in this process, as their own tests do; no executor and no Ray. Only the stages are timed, never the imports.
"""

import json
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path

try:
    import nemo_curator  # noqa: F401  # asked for first, for one clear message
except ModuleNotFoundError:
    sys.exit("nemo-curator is not installed here: benchmarks/README.md says how to make its environment")

from loguru import logger
from nemo_curator.stages.interleaved.io.reader import InterleavedParquetReader, InterleavedWebdatasetReader
from nemo_curator.stages.interleaved.io.writers import InterleavedParquetWriterStage, InterleavedWebdatasetWriterStage
from nemo_curator.stages.interleaved.stages import InterleavedAspectRatioFilterStage
from nemo_curator.tasks import EmptyTask

READERS = {"wds": InterleavedWebdatasetReader, "parquet": InterleavedParquetReader}
WRITERS = {"wds": InterleavedWebdatasetWriterStage, "parquet": InterleavedParquetWriterStage}


def convert(request: dict) -> None:
    """Read every input, filter by aspect ratio and write; the input's paths decide how many outputs there are."""
    source, target = request["direction"].split("-")
    reader_options = {"materialize_on_read": request.get("materialize_on_read", False)} if source == "wds" else {}
    partitioning, reader = READERS[source](file_paths=request["inputs"], **reader_options).decompose()
    low, high = request["aspect_ratio"]
    keep = InterleavedAspectRatioFilterStage(min_aspect_ratio=low, max_aspect_ratio=high)
    writer = WRITERS[target](path=request["output"], materialize_on_write=True, mode="ignore")
    for task in partitioning.process(EmptyTask()):
        batches = reader.process(task)
        for batch in batches if isinstance(batches, list) else [batches]:
            writer.process(keep.process(batch))


def main() -> None:
    """Answer requests until standard input ends."""
    logger.remove()
    packages = ("nemo-curator", "pyarrow", "pandas", "pillow", "numpy")
    versions = {"python": platform.python_version()} | {name: version(name) for name in packages}
    print(json.dumps({"versions": versions}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        Path(request["output"]).mkdir(parents=True)
        started, cpu_started = time.perf_counter(), time.process_time()
        convert(request)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
        print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds}), flush=True)


if __name__ == "__main__":
    main()
