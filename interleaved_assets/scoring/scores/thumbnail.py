"""A small picture of each image, stored beside its scores; no filter uses it."""

from typing import TYPE_CHECKING

from interleaved_assets.scoring.images.options import THUMBNAIL_COLUMN
from interleaved_assets.scoring.protocol.scorer import MeasureFunction, Scorer, register_scorer

if TYPE_CHECKING:
    from interleaved_assets.scoring.protocol.settings import ScoringSettings


def _prepare(_settings: "ScoringSettings") -> MeasureFunction:
    from interleaved_assets.scoring.images.thumbnail import thumbnail

    return thumbnail


register_scorer(
    Scorer(
        "thumbnail",
        {THUMBNAIL_COLUMN: "binary"},
        _prepare,
        about="a small picture for contact sheets",
        meanings={THUMBNAIL_COLUMN: "A small JPEG, for the reports."},
        after="nsfw",
    )
)
