"""Scores and decisions of nemo-curator 1.4.0 for rows in a Parquet file; runs in the environment of that package.

Standard input: ``{"rows": PATH, "blur": [threshold, …], "aspect": [[low, high], …], "ratio": [[low, high], …]}``.
Standard output: ``{"sharpness": […], "aspect_ratio": […], "blur": [[…], …], "aspect": …, "ratio": …}``, where scores
are one for each image row (null: undecodable) and decisions one bool for each row, of the stage's own mask.
"""

import json
import sys

try:
    import nemo_curator  # noqa: F401  # asked for first, for one clear message
except ModuleNotFoundError:
    sys.exit("nemo-curator is not installed here: benchmarks/README.md says how to make its environment")

import pyarrow.parquet as pq
from loguru import logger
from nemo_curator.stages.interleaved.filter import InterleavedBlurFilterStage, InterleavedImageToTextRatioFilterStage
from nemo_curator.stages.interleaved.filter.blur_filter import _sharpness_score
from nemo_curator.stages.interleaved.stages import InterleavedAspectRatioFilterStage
from nemo_curator.stages.interleaved.utils import image_bytes_to_array
from nemo_curator.tasks import InterleavedBatch


def main() -> None:
    """Answer one request."""
    logger.remove()
    request = json.load(sys.stdin)
    frame = pq.read_table(request["rows"]).to_pandas()
    batch = InterleavedBatch(dataset_name="rows", data=frame)

    def masks(stages: list) -> list[list[bool]]:
        return [stage.content_keep_mask(batch, frame).tolist() for stage in stages]

    contents = frame.loc[frame["modality"] == "image", "binary_content"]
    images = [image_bytes_to_array(content) for content in contents]
    answer = {
        "sharpness": [None if image is None else _sharpness_score(image) for image in images],
        "aspect_ratio": [InterleavedAspectRatioFilterStage._image_aspect_ratio(content) for content in contents],
        "blur": masks([InterleavedBlurFilterStage(score_threshold=threshold) for threshold in request["blur"]]),
        "aspect": masks(
            [
                InterleavedAspectRatioFilterStage(min_aspect_ratio=low, max_aspect_ratio=high)
                for low, high in request["aspect"]
            ]
        ),
        "ratio": masks(
            [InterleavedImageToTextRatioFilterStage(min_ratio=low, max_ratio=high) for low, high in request["ratio"]]
        ),
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
