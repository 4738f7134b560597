"""Which images the stored cheap scores keep from the model, and why."""

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.model.errors import SettingsError, row_error
from interleaved_assets.scoring.clip.settings import PrescreenSettings


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
        side, column = name.split("_", 1)
        is_outside, words = (pc.less, "below") if side == "min" else (pc.greater, "above")
        if name in ("max_qr_area_ratio", "max_nsfw_score"):
            is_outside, words = pc.greater_equal, "not below"
        if column not in scores.column_names:
            raise SettingsError(
                f"clip.prescreen.{name} is set, and the image scores have no column {column!r}: switch that scorer on, "
                "or take the bound away"
            )
        broken = scores.select(["sample_id", "position", column]).filter(is_outside(scores[column], bound))
        for sample_id, position, value in zip(*(broken[part].to_pylist() for part in broken.column_names), strict=True):
            detail = f"{column} {value:g} is {words} clip.prescreen.{name} {bound:g}"
            found.setdefault((sample_id, position), row_error("prescreened", detail))
    return found
