"""A small picture of each image, stored beside its scores; no filter uses it."""

from interleaved_assets.scoring.images.thumbnail import THUMBNAIL_COLUMN, thumbnail
from interleaved_assets.scoring.protocol.scorer import Scorer, register_scorer

register_scorer(
    Scorer(
        "thumbnail",
        {THUMBNAIL_COLUMN: "binary"},
        lambda _: thumbnail,
        about="a small picture for contact sheets",
        meanings={THUMBNAIL_COLUMN: "A small JPEG, for the reports."},
        after="nsfw",
    )
)
