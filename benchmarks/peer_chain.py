"""The peer's pipeline on raw shards, once: reader, blur, QR and ratio filters, writer, on Ray Data.

Runs in the environment of nemo-curator 1.4.0. Standard input: ``{"inputs": [PATH, …], "output": FOLDER}``. Last line of
standard output: ``{"seconds": …}``, from building the pipeline to its end, the start of Ray included.
"""

import json
import sys
import time
from pathlib import Path

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
    pipeline = Pipeline(name="chain")
    for stage in (
        InterleavedWebdatasetReader(file_paths=request["inputs"]),
        InterleavedBlurFilterStage(),
        InterleavedQRCodeFilterStage(),
        InterleavedImageToTextRatioFilterStage(),
        InterleavedWebdatasetWriterStage(path=request["output"], materialize_on_write=True, mode="ignore"),
    ):
        pipeline.add_stage(stage)
    pipeline.run(RayDataExecutor())
    print(json.dumps({"seconds": time.perf_counter() - started}))


if __name__ == "__main__":
    main()
