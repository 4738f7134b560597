"""Which images the stored cheap scores keep from the model, and why."""

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.model.errors import SettingsError, row_error
from interleaved_assets.scoring.clip.settings import PrescreenSettings

# bound -> column, test that leaves an image out, and how to say so
_BOUNDS: Final[dict[str, tuple[str, Callable[..., pa.ChunkedArray], str]]] = {
    "min_sharpness": ("sharpness", pc.less, "below"),
    "min_sharpness_256": ("sharpness_256", pc.less, "below"),
    "max_qr_area_ratio": ("qr_area_ratio", pc.greater_equal, "not below"),
    "max_nsfw_score": ("nsfw_score", pc.greater_equal, "not below"),
    "min_aspect_ratio": ("aspect_ratio", pc.less, "below"),
    "max_aspect_ratio": ("aspect_ratio", pc.greater, "above"),
    "min_width": ("width", pc.less, "below"),
    "min_height": ("height", pc.less, "below"),
}


def prescreened(scores: pa.Table, settings: PrescreenSettings) -> dict[tuple[str, int], str]:
    """The images outside of a bound, by sample id and position, each with its ``clip_error``.

    Args:
        scores: the image scores of a shard: ``sample_id``, ``position`` and the columns the bounds are on. An image
            whose score is null is not left out.
        settings: the bounds; of several that an image breaks, the first in the settings' order is named.

    Raises:
        SettingsError: a bound is on a score that was not computed.
    """
    found: dict[tuple[str, int], str] = {}
    for name, bound in settings:
        if bound is None:
            continue
        column, is_outside, words = _BOUNDS[name]
        if column not in scores.column_names:
            raise SettingsError(
                f"clip.prescreen.{name} is set, and the image scores have no column {column!r}: switch that scorer on, "
                "or take the bound away"
            )
        rows = np.flatnonzero(pc.fill_null(is_outside(scores[column], bound), False).to_numpy(zero_copy_only=False))
        broken = scores.select(["sample_id", "position", column]).take(rows)
        for sample_id, position, value in zip(*(broken[part].to_pylist() for part in broken.column_names), strict=True):
            detail = f"{column} {value:g} is {words} clip.prescreen.{name} {bound:g}"
            found.setdefault((sample_id, position), row_error("prescreened", detail))
    return found
