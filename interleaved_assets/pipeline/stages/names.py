"""Names of the stages, apart from their declarations, for modules that only name them."""

from typing import TYPE_CHECKING, Final

from interleaved_assets.export import names as export_names
from interleaved_assets.settings import shard_paths

if TYPE_CHECKING:
    from interleaved_assets.settings import Settings

NORMALIZED: Final = "normalized"
IMAGE_SCORES: Final = "image_scores"
CLIP_SCORES: Final = "clip_scores"
FILTERED: Final = "filtered"
FINAL_TARS: Final = shard_paths.FINAL_TARS
IMAGE_EXPORT: Final = export_names.STAGE

SELECTED_FROM: Final = (NORMALIZED, IMAGE_SCORES, CLIP_SCORES, FILTERED)
"""The stage that selects rows, and those whose outputs it reads."""

RATIO: Final = "ratio"
"""The sample filter whose values are stored for the reports, and the column that has them."""


def score_stages(settings: "Settings") -> tuple[str, ...]:
    """Return the stages that score images under ``settings``."""
    return (IMAGE_SCORES, CLIP_SCORES) if settings.clip.enabled else (IMAGE_SCORES,)
