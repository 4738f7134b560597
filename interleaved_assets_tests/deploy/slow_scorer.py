"""A scorer that takes its time, and hangs at an image of one width. Ray's workers load it, so it stands apart."""

import time

import pyarrow as pa

from interleaved_assets.scoring import BgrImage, Scorer, register_scorer

NAME = "slow"
HANGS_AT = 13
"""Pixels."""


def measure(image: BgrImage) -> float:
    time.sleep(3600 if image.shape[1] == HANGS_AT else 0.1)
    return float(image.mean())


register_scorer(Scorer(NAME, {"mean": pa.float64()}, lambda _settings: measure))
