"""The identity of an image, by which a later step can find repeated ones. No filter compares it."""

import xxhash

from interleaved_assets.scoring.protocol.scorer import Scorer, register_scorer

register_scorer(
    Scorer(
        "image_identity",
        {"image_hash": "string"},
        lambda _: xxhash.xxh3_128_hexdigest,
        about="a hash of its bytes, to find repeated ones",
        meanings={"image_hash": "128-bit XXH3 of the image's bytes as stored, as 32 hex digits."},
        of_bytes=True,
        after="thumbnail",
    )
)
