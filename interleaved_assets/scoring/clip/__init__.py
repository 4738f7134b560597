"""CLIP: identity, model, image and text, batching, scores and heads.

Importing it loads no torch; :func:`load_scorer` does.
"""

from interleaved_assets.scoring.clip.scorer import ClipScorer, load_scorer
from interleaved_assets.scoring.clip.settings import ClipSettings, HeadSettings, PrescreenSettings
from interleaved_assets.scoring.clip.stream import score_shards, score_table

__all__ = [
    "ClipScorer",
    "ClipSettings",
    "HeadSettings",
    "PrescreenSettings",
    "load_scorer",
    "score_shards",
    "score_table",
]
