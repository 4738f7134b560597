"""A scorer that waits at an image of one width as long as a file is there. Runs load it, so it stands apart.

The file lies beside the settings file of the run's process. Without that variable, as in the test's own process, it
does not wait.
"""

import os
import time
from pathlib import Path

import pyarrow as pa

from interleaved_assets.scoring import BgrImage, Scorer, register_scorer
from interleaved_assets.settings.load import FILE_VARIABLE

NAME = "gated"
WAITS_AT = 13
"""Pixels."""
GATE = "gate"
_LONGEST_SECONDS = 120


def measure(image: BgrImage) -> float:
    settings = os.environ.get(FILE_VARIABLE)
    if settings is not None and image.shape[1] == WAITS_AT:
        deadline = time.monotonic() + _LONGEST_SECONDS
        while Path(settings).with_name(GATE).exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the test has not removed the file {GATE} within {_LONGEST_SECONDS} s")
            time.sleep(0.05)
    return float(image.mean())


register_scorer(Scorer(NAME, {"mean": pa.float64()}, lambda _settings: measure))
