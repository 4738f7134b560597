"""Scorers, one per file: they measure images and samples, and do not decide what to keep.

CLIP scores need torch and are in ``interleaved_assets.scoring.clip``, which this package does not import.
"""

from interleaved_assets.scoring.decode import BgrImage
from interleaved_assets.scoring.ranges import ABOVE_ZERO, Range
from interleaved_assets.scoring.registry import (
    Scorer,
    known_scorers,
    register_scorer,
    scores_schema,
    unregister_scorer,
)
from interleaved_assets.scoring.score import score_images
from interleaved_assets.scoring.settings import ScoringSettings
from interleaved_assets.scoring.text_ratio import count_words

__all__ = [
    "ABOVE_ZERO",
    "BgrImage",
    "Range",
    "Scorer",
    "ScoringSettings",
    "count_words",
    "known_scorers",
    "register_scorer",
    "score_images",
    "scores_schema",
    "unregister_scorer",
]
