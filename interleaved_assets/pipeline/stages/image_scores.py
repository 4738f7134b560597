"""The stage ``image_scores``: the measurements of each image on the CPU."""

import json
from typing import Final

from interleaved_assets.pipeline.checks.rows import ROWS_WITHOUT_ERROR
from interleaved_assets.pipeline.checks.schemas import IMAGE_SCORE_SCHEMA
from interleaved_assets.pipeline.checks.scores import EVERY_IMAGE_SCORED, IMAGE_SCORES_IN_RANGE
from interleaved_assets.pipeline.run.stage import Display, Stage, work
from interleaved_assets.pipeline.stages.names import IMAGE_SCORES, NORMALIZED
from interleaved_assets.scoring.protocol.registry import scoring_packages, scoring_version
from interleaved_assets.settings import Settings

WORK: Final = "interleaved_assets.pipeline.stages.score_images:score"


def declare(_: Settings) -> Stage:
    """Return the stage."""
    return Stage(
        IMAGE_SCORES,
        (NORMALIZED,),
        version=2,
        settings=lambda settings: dict(json.loads(scoring_version(settings.scoring))),
        run=work(WORK),
        packages=lambda settings: scoring_packages(settings.scoring),
        checks=(ROWS_WITHOUT_ERROR, EVERY_IMAGE_SCORED, IMAGE_SCORES_IN_RANGE, IMAGE_SCORE_SCHEMA),
        display=Display(
            "One row per image: size, sharpness, QR code area. Measured once; thresholds are applied in filtered.",
            "score",
            frozenset({"parquet", "opencv"}),
        ),
    )
