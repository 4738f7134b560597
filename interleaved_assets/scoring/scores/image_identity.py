"""The identity of an image, by which a later step can find repeated ones. No filter compares it."""

import xxhash

from interleaved_assets.scoring.images.containers import Buffer
from interleaved_assets.scoring.protocol.scorer import Scorer, register_scorer


def _hash(data: Buffer) -> str:
    return xxhash.xxh3_128_hexdigest(data)


register_scorer(
    Scorer(
        "image_identity",
        {"image_hash": "string"},
        lambda _: _hash,
        about="a hash of its bytes, to find repeated ones",
        meanings={"image_hash": "128-bit XXH3 of the image's bytes as stored, as 32 hex digits."},
        of_bytes=True,
        after="thumbnail",
    )
)
