"""The scores that CLIP's stage measures: similarity with texts, and heads on the embedding of the image."""

from typing import Final

from interleaved_assets.scoring.protocol.filter import CLIP_ERRORS, Bound, Display, ImageFilter
from interleaved_assets.scoring.protocol.scorer import Range, Scorer, register_scorer

EMBEDDING: Final = "embedding"
_HEADS: Final = "clip.enabled and clip.heads"

CLIP: Final = Scorer(
    "clip",
    {
        "clip_score": "double",
        "clip_text_position": "int32",
        "aesthetic_score": "double",
        "nsfw_clip_score": "double",
        EMBEDDING: "fixed_size_list<item: halffloat>[*]",
        "clip_error": "string",
    },
    packages=("open_clip_torch", "pillow", "torch"),
    ranges={
        "clip_score": Range(-1, 1),
        "clip_text_position": Range(low=0),
        EMBEDDING: Range(0.99, 1.01),  # of length 1, stored as float16
    },
    meanings={
        "clip_score": "Highest cosine similarity of the image with a text of its document, -1 to 1.",
        "clip_text_position": "The position of that text.",
        "aesthetic_score": "Score of the head of kind aesthetic; the head defines its range.",
        "nsfw_clip_score": "Score of the head of kind nsfw.",
        EMBEDDING: "CLIP's embedding of the image, of length 1.",
        "clip_error": "'code: detail' of an image without a CLIP score, else null (docs/errors.md).",
    },
    filters=(
        ImageFilter(
            "clip",
            ("clip_score",),
            error_columns=CLIP_ERRORS,
            if_scored=True,
            minimum=Bound(
                "min_clip",
                "Smallest cosine similarity of an image with the best text of its sample, -1 to 1; applied if CLIP "
                "scores exist.",
                0.15,
                limits={"ge": -1, "le": 1},
            ),
            display=Display("CLIP similarity", "CLIP", -1, unit="cosine with the best text"),
        ),
        ImageFilter(
            "aesthetic",
            ("aesthetic_score",),
            error_columns=CLIP_ERRORS,
            minimum=Bound("min_aesthetic", "Smallest aesthetic score; the head defines its range."),
            display=Display("Aesthetic score", "aesthetic", -10, 20),
        ),
        ImageFilter(
            "nsfw_clip",
            ("nsfw_clip_score",),
            open_maximum=True,
            error_columns=CLIP_ERRORS,
            maximum=Bound("max_nsfw_clip", "NSFW score of a head on the CLIP embedding must be below this."),
            display=Display("NSFW score of the CLIP head", "NSFW (CLIP)", -1, 2),
        ),
    ),
    section="clip",
    turned_on_by={"clip_score": "clip.enabled", "aesthetic_score": _HEADS, "nsfw_clip_score": _HEADS},
    after="ratio",
)
register_scorer(CLIP)
