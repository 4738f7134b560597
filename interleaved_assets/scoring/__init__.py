"""One measured quantity a file: what an image or a sample is like, never whether to keep it."""

from interleaved_assets.scoring.score import score_images
from interleaved_assets.scoring.settings import ScoringSettings

__all__ = ["ScoringSettings", "score_images"]
