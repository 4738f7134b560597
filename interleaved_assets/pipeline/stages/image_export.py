"""The stage ``image_export``: the kept images as tars, with a table beside each."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from interleaved_assets.model.imported import imported
from interleaved_assets.pipeline.checks.rows_accounted_for import ROWS_ACCOUNTED_FOR
from interleaved_assets.pipeline.checks.rows_without_error import ROWS_WITHOUT_ERROR
from interleaved_assets.pipeline.run.stage import Stage, StageDisplay, StageOutput, with_image_scores
from interleaved_assets.pipeline.stages.names import FILTERED, FINAL_TARS, IMAGE_EXPORT
from interleaved_assets.settings import Settings


def _connect(stage: Stage, settings: Settings, before: Sequence[Stage]) -> Stage | None:
    if not settings.export.enabled:
        return None
    # it does not read the final tar, but runs after it, so that a shard that failed there is not exported
    return replace(stage, inputs=(FILTERED, *(one.name for one in with_image_scores(before)), FINAL_TARS))


STAGE: Final = Stage(
    IMAGE_EXPORT,
    version=2,
    settings=lambda settings: settings.export.stage_version(settings.scoring.max_pixels),
    run=imported("interleaved_assets.pipeline.tasks.image_export:export_images"),
    packages=lambda settings: {"pillow"} if settings.export.reencode else set(),
    checks=(ROWS_WITHOUT_ERROR, ROWS_ACCOUNTED_FOR),
    connect=_connect,
    output=StageOutput("images"),
    display=StageDisplay(
        "The images that selection has kept as tars `images-<hash>-<number>.tar`, with a JSON for each image and a "
        "Parquet file beside each tar. This table has one row per image: its tar and member, its scores and the "
        "texts around it.",
        "publish",
        frozenset({"webdataset", "parquet"}),
    ),
)
