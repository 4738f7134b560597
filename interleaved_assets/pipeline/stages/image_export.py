"""image_export: the images that selection has kept, as tars with their tables."""

from collections.abc import Sequence
from typing import Final

from interleaved_assets.pipeline.stage import ShardTask, Stage, Work
from interleaved_assets.pipeline.stages.names import FILTERED, FINAL_TARS, IMAGE_EXPORT
from interleaved_assets.settings import Settings

NAME: Final = IMAGE_EXPORT


def version_settings(settings: Settings) -> dict[str, object]:
    return settings.export.stage_version(settings.scoring.max_pixels)


def _export_images(shard: ShardTask) -> Work:
    from interleaved_assets.pipeline.stages.export_images import export_images  # the work begins here

    return export_images(shard)


def stage(scores: Sequence[str]) -> Stage:
    """The stage; ``scores`` are the names of the stages with score tables.

    It does not read the final tar, and runs after it: what failed there is not exported.
    """
    reads = (FILTERED, *scores, FINAL_TARS)
    return Stage(NAME, inputs=reads, version=1, settings=version_settings, run=_export_images)
