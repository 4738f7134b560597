"""One image through every scorer on the CPU and both CLIP preparations; gives the case's outcome."""

import functools
import math
from typing import Final

import numpy as np
import pyarrow as pa

from benchmarks.fuzz.checks import known_code, outcome_of
from benchmarks.fuzz.child import WrongRead
from benchmarks.fuzz.oracles import check_png
from interleaved_assets.model.errors import ImageError
from interleaved_assets.scoring import ScoringSettings, known_scorers, score_images
from interleaved_assets.scoring.images.decode import decode_image
from interleaved_assets.scoring.images.size import image_size
from interleaved_assets.scoring.protocol.registry import score_ranges
from interleaved_assets.scoring.scores.nsfw import nsfw_model
from interleaved_assets.scoring.scores.qr import qr_area_ratio

_MAX_PIXELS: Final = 4_000_000
_SETTINGS: Final = ScoringSettings(scorers=known_scorers(), max_pixels=_MAX_PIXELS)
_RANGES: Final = score_ranges(_SETTINGS)


def load_models() -> None:
    """Load what images are checked with; called before cases are forked, so that not every child loads it."""
    nsfw_model()
    _preparations()


@functools.cache
def _preparations():  # type: ignore[no-untyped-def]  # torch loads where images are checked
    from open_clip.transform import PreprocessCfg

    from interleaved_assets.scoring.clip.image import Preprocess

    # the images have 64 x 48 pixels, and the decoder reduces what has four times the model's input
    sides = {"pillow": 224, "torch": 224, "reduced": 6}
    return [Preprocess(PreprocessCfg(size=side), resizer, _MAX_PIXELS) for resizer, side in sides.items()]


def check_image(content: bytes) -> str:
    """Scores in their ranges or error codes; the size measured is the size decoded; an 8-bit PNG is exact."""
    columns = {"sample_id": ["s"], "position": pa.array([0], pa.int32()), "modality": ["image"]}
    rows = pa.table({**columns, "binary_content": pa.array([content], pa.large_binary())})
    row = score_images(rows, _SETTINGS, threads=1).to_pylist()[0]
    codes = _check_preparations(content)
    if error := row["score_error"]:
        return outcome_of({known_code(error), *codes})
    for name, values in _RANGES.items():
        if not (math.isfinite(row[name]) and values.holds(row[name], row[name])):
            raise WrongRead(f"{name} is {row[name]}, which is not {values}")
    size = image_size(content)
    if size != (row["width"], row["height"]):
        raise WrongRead(f"measured {size}, scored as {row['width'], row['height']}")
    pixels = decode_image(content, max_pixels=_MAX_PIXELS)
    if pixels.shape != (size[1], size[0], 3):
        raise WrongRead(f"measured {size}, decoded to {pixels.shape}")
    check_png(content, pixels)
    try:
        qr_area_ratio(pixels, "opencv")
    except ImageError as error:
        codes.add(known_code(error.error))
    return outcome_of(codes)


def _check_preparations(content: bytes) -> set[str]:
    """Error codes of the preparations for CLIP: all of them refuse the image, or none does.

    Those that see all pixels give the same square, roughly.
    """
    found, codes = [], set()
    for preparation in _preparations():
        try:
            pixels = preparation(content)
        except ImageError as error:
            codes.add(known_code(error.error))
            continue
        if pixels.shape != (*preparation.height_width, 3) or pixels.dtype != np.uint8:
            raise WrongRead(f"prepared for CLIP as {pixels.dtype} of shape {pixels.shape}")
        found.append(pixels.astype(np.int16))
    if len(found) not in (0, len(_preparations())) or len(codes) > 1:
        raise WrongRead(f"{len(found)} preparations for CLIP give pixels, the others {codes}")
    if found and (difference := np.abs(found[0] - found[1]).mean()) > 1:
        raise WrongRead(f"the preparations for CLIP differ by {difference:.1f} grey levels in the mean")
    return codes
