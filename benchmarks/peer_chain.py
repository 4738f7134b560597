"""The peer's pipeline on raw shards, once: reader, blur, QR and ratio filters, writer, on Ray Data.

Runs in the environment of nemo-curator 1.4.0. Standard input: ``{"inputs": [PATH, …], "output": FOLDER}``, with
``"eager": true`` for ``materialize_on_read=True``. Last line of standard output:
``{"seconds": …, "start_seconds": …}``, from the start of Ray to the end of the pipeline, and how much the start takes.
"""

import json
import sys
import time
from pathlib import Path

try:
    import nemo_curator  # noqa: F401  # asked for first, for one clear message
except ModuleNotFoundError:
    sys.exit("nemo-curator is not installed here: benchmarks/README.md says how to make its environment")

import ray
from loguru import logger
from nemo_curator.backends.ray_data import RayDataExecutor
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.interleaved.filter import (
    InterleavedBlurFilterStage,
    InterleavedImageToTextRatioFilterStage,
    InterleavedQRCodeFilterStage,
)
from nemo_curator.stages.interleaved.io.reader import InterleavedWebdatasetReader
from nemo_curator.stages.interleaved.io.writers import InterleavedWebdatasetWriterStage


def main() -> None:
    """Answer one request."""
    logger.remove()
    request = json.load(sys.stdin)
    Path(request["output"]).mkdir(parents=True)
    started = time.perf_counter()
    ray.init()  # the executor takes it over
    start_seconds = time.perf_counter() - started
    pipeline = Pipeline(name="chain")
    for stage in (
        InterleavedWebdatasetReader(file_paths=request["inputs"], materialize_on_read=request.get("eager", False)),
        InterleavedBlurFilterStage(),
        InterleavedQRCodeFilterStage(),
        InterleavedImageToTextRatioFilterStage(),
        InterleavedWebdatasetWriterStage(path=request["output"], materialize_on_write=True, mode="ignore"),
    ):
        pipeline.add_stage(stage)
    pipeline.run(RayDataExecutor())
    print(json.dumps({"seconds": time.perf_counter() - started, "start_seconds": start_seconds}))


if __name__ == "__main__":
    main()
