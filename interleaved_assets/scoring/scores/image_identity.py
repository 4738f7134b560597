"""The identity of an image, by which a later step can find repeated ones. No filter compares it."""

from typing import TYPE_CHECKING

from interleaved_assets.scoring.protocol.scorer import MeasureFunction, Scorer, register_scorer

if TYPE_CHECKING:
    from interleaved_assets.scoring.images.containers import Buffer
    from interleaved_assets.scoring.protocol.settings import ScoringSettings


def _hash(data: "Buffer") -> str:
    import xxhash

    return xxhash.xxh3_128_hexdigest(data)


def _prepare(_settings: "ScoringSettings") -> MeasureFunction:
    return _hash


register_scorer(
    Scorer(
        "image_identity",
        {"image_hash": "string"},
        _prepare,
        about="a hash of its bytes, to find repeated ones",
        meanings={"image_hash": "128-bit XXH3 of the image's bytes as stored, as 32 hex digits."},
        of_bytes=True,
        after="thumbnail",
    )
)
