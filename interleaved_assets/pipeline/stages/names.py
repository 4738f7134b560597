"""Names of the stages, apart from their declarations, for modules that only name them."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from interleaved_assets.export import names as export_names
from interleaved_assets.settings import shard_paths

if TYPE_CHECKING:
    from interleaved_assets.settings import Settings

NORMALIZED: Final = "normalized"
REWRITTEN: Final = "rewritten"
IMAGE_SCORES: Final = "image_scores"
DOCUMENT_SCORES: Final = "document_scores"
CLIP_SCORES: Final = "clip_scores"
FILTERED: Final = "filtered"
FINAL_TARS: Final = shard_paths.FINAL_TARS
IMAGE_EXPORT: Final = export_names.STAGE

SELECTED_FROM: Final = (NORMALIZED, REWRITTEN, IMAGE_SCORES, DOCUMENT_SCORES, CLIP_SCORES, FILTERED)
"""The stage that selects rows, and those whose outputs it reads."""

RATIO: Final = "ratio"
"""The sample filter whose values are stored for the reports, and the column that has them."""

_WITH_ROWS: Final = (NORMALIZED, REWRITTEN, FILTERED)
"""The stages whose output has the rows of the row model, in order."""


def rows_stage(settings: "Settings") -> str:
    """Return the stage whose rows are scored and selected: ``rewritten`` if ``[rewriting]`` names a function."""
    return REWRITTEN if settings.rewriting.functions else NORMALIZED


def rows_input(inputs: Collection[str]) -> str | None:
    """Return the stage whose rows a stage with these ``inputs`` reads; None if it reads a raw shard."""
    return next((name for name in reversed(_WITH_ROWS) if name in inputs), None)


def score_stages(settings: "Settings") -> tuple[str, ...]:
    """Return the stages that score images under ``settings``."""
    return (IMAGE_SCORES, CLIP_SCORES) if settings.clip.enabled else (IMAGE_SCORES,)
