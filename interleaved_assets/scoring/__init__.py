"""Scorers, one per file: they measure images and samples, and do not decide what to keep.

CLIP scores need torch and are in ``interleaved_assets.scoring.clip``, which this package does not import.
"""

from typing import TYPE_CHECKING

from interleaved_assets.front_door import offered

if TYPE_CHECKING:
    from interleaved_assets.scoring.decode import BgrImage
    from interleaved_assets.scoring.ranges import ABOVE_ZERO, Range
    from interleaved_assets.scoring.registry import Scorer, known_scorers, register_scorer, unregister_scorer
    from interleaved_assets.scoring.schema import scores_schema
    from interleaved_assets.scoring.score import score_images
    from interleaved_assets.scoring.settings import ScoringSettings
    from interleaved_assets.scoring.text_ratio import count_words
else:
    __getattr__, __dir__ = offered(
        __name__,
        {
            "decode": ("BgrImage",),
            "ranges": ("ABOVE_ZERO", "Range"),
            "registry": ("Scorer", "known_scorers", "register_scorer", "unregister_scorer"),
            "schema": ("scores_schema",),
            "score": ("score_images",),
            "settings": ("ScoringSettings",),
            "text_ratio": ("count_words",),
        },
    )

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
