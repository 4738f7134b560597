"""The stage ``image_export``: the kept images as tars, with a table beside each."""

from collections.abc import Sequence
from typing import Final

from interleaved_assets.pipeline.checks.rows_accounted_for import ROWS_ACCOUNTED_FOR
from interleaved_assets.pipeline.checks.rows_without_error import ROWS_WITHOUT_ERROR
from interleaved_assets.pipeline.run.stage import Stage, StageDisplay, StageOutput, with_image_scores, work
from interleaved_assets.pipeline.stages.names import FILTERED, FINAL_TARS
from interleaved_assets.pipeline.stages.names import IMAGE_EXPORT as NAME
from interleaved_assets.settings import Settings

WORK: Final = "interleaved_assets.pipeline.tasks.image_export:export_images"
OUTPUT: Final = StageOutput("images")


def declare(settings: Settings, before: Sequence[Stage]) -> Stage | None:
    """Return the stage, if ``export.enabled`` is set, else None."""
    if not settings.export.enabled:
        return None
    return Stage(
        NAME,
        # it does not read the final tar, but runs after it, so that a shard that failed there is not exported
        (FILTERED, *(stage.name for stage in with_image_scores(before)), FINAL_TARS),
        version=2,
        settings=lambda settings: settings.export.stage_version(settings.scoring.max_pixels),
        run=work(WORK),
        packages=lambda settings: {"pillow"} if settings.export.reencode else set(),
        checks=(ROWS_WITHOUT_ERROR, ROWS_ACCOUNTED_FOR),
        output=OUTPUT,
        display=StageDisplay(
            "The images that selection has kept as tars `images-<hash>-<number>.tar`, with a JSON for each image and a "
            "Parquet file beside each tar. This table has one row per image: its tar and member, its scores and the "
            "texts around it.",
            "publish",
            frozenset({"webdataset", "parquet"}),
        ),
    )
