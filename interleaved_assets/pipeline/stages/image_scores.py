"""The stage ``image_scores``: the measurements of each image on the CPU."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from interleaved_assets.model.imported import imported
from interleaved_assets.pipeline.checks.every_image_scored import EVERY_IMAGE_SCORED
from interleaved_assets.pipeline.checks.rows_without_error import ROWS_WITHOUT_ERROR
from interleaved_assets.pipeline.checks.schema_canonical import SCHEMA_CANONICAL
from interleaved_assets.pipeline.checks.scores_in_range import SCORES_IN_RANGE
from interleaved_assets.pipeline.run.stage import Stage, StageDisplay, StageOutput, last_with_images, scored_from
from interleaved_assets.pipeline.stages.names import IMAGE_SCORES
from interleaved_assets.scoring.protocol.registry import score_columns, score_ranges, scoring_packages, scoring_version
from interleaved_assets.scoring.protocol.scorer import ERROR_COLUMN
from interleaved_assets.settings import Settings


def _connect(stage: Stage, _: Settings, before: Sequence[Stage]) -> Stage:
    rows = last_with_images(before)
    return replace(
        stage, inputs=(rows,), made_from=lambda column, _: scored_from(rows, column, ERROR_COLUMN, "binary_content")
    )


STAGE: Final = Stage(
    IMAGE_SCORES,
    version=2,
    settings=lambda settings: dict(json.loads(scoring_version(settings.scoring))),
    run=imported("interleaved_assets.pipeline.tasks.image_scores:score"),
    prepare=imported("interleaved_assets.pipeline.tasks.image_scores:prepare"),
    packages=lambda settings: scoring_packages(settings.scoring),
    checks=(ROWS_WITHOUT_ERROR, EVERY_IMAGE_SCORED, SCORES_IN_RANGE, SCHEMA_CANONICAL),
    columns=lambda settings: score_columns(settings.scoring),
    ranges=lambda settings: score_ranges(settings.scoring),
    connect=_connect,
    output=StageOutput("image scores"),
    display=StageDisplay(
        "One row per image: size, sharpness, QR code area. Measured once; thresholds are applied in filtered.",
        "score",
        frozenset({"parquet", "opencv"}),
    ),
)
