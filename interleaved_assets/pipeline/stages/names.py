"""Names of the stages, apart from the stages themselves, for modules that only name them."""

from typing import Final

from interleaved_assets.export import names as export_names
from interleaved_assets.settings import shard_paths

NORMALIZED: Final = "normalized"
REWRITTEN: Final = "rewritten"
IMAGE_SCORES: Final = "image_scores"
DOCUMENT_SCORES: Final = "document_scores"
CLIP_SCORES: Final = "clip_scores"
FILTERED: Final = "filtered"
FINAL_TARS: Final = shard_paths.FINAL_TARS
IMAGE_EXPORT: Final = export_names.STAGE

RATIO: Final = "ratio"
"""The sample filter whose values are stored for the reports, and the column that has them."""
