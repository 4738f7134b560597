"""CLIP: identity, model, image and text, batching, scores and heads.

Importing it loads no torch; :func:`load_scorer` does.
"""

from typing import TYPE_CHECKING

from interleaved_assets.front_door import offered

if TYPE_CHECKING:
    from interleaved_assets.scoring.clip.scorer import ClipScorer, load_scorer
    from interleaved_assets.scoring.clip.settings import ClipSettings, HeadSettings, PrescreenSettings
    from interleaved_assets.scoring.clip.stream import score_shards, score_table
else:
    __getattr__, __dir__ = offered(
        __name__,
        {
            "scorer": ("ClipScorer", "load_scorer"),
            "settings": ("ClipSettings", "HeadSettings", "PrescreenSettings"),
            "stream": ("score_shards", "score_table"),
        },
    )

__all__ = [
    "ClipScorer",
    "ClipSettings",
    "HeadSettings",
    "PrescreenSettings",
    "load_scorer",
    "score_shards",
    "score_table",
]
