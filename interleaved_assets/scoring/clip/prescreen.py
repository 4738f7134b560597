"""Images that stored cheap scores keep from the model, with the reason for each."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.model import digits
from interleaved_assets.model.errors import SettingsError, row_error
from interleaved_assets.scoring.clip.settings import PrescreenSettings
from interleaved_assets.scoring.protocol.filter import outside


def prescreened(scores: pa.Table, settings: PrescreenSettings) -> dict[tuple[str, int], str]:
    """Return the images outside of a bound, by sample id and position, each with its ``clip_error``.

    Args:
        scores: the image scores of a shard: ``sample_id``, ``position`` and the columns the bounds are on. An image
            whose score is null is not left out.
        settings: the bounds; of several that an image breaks, the first in the settings' order is named.

    Raises:
        SettingsError: a bound is on a score that was not computed.
    """
    found: dict[tuple[str, int], str] = {}
    for judge, bound, bounds in settings.bounds():
        if lacking := [column for column in judge.columns if column not in scores.column_names]:
            raise SettingsError(
                f"clip.prescreen.{bound.setting} is set, and the image scores have no column {lacking[0]!r}: switch "
                "that scorer on, or take the bound away"
            )
        columns = [pc.fill_null(scores[name].cast(pa.float64()), np.nan).to_numpy() for name in judge.columns]
        values = judge.value(columns)
        below, above = outside(judge, values, bounds)
        name = judge.columns[0] if judge.combine is None else judge.name
        limit = getattr(settings, bound.setting)
        words = "below" if bound is judge.minimum else "not below" if judge.open_maximum else "above"
        for row in np.flatnonzero(below | above).tolist():
            key = scores["sample_id"][row].as_py(), scores["position"][row].as_py()
            said = digits.measured(values[row], limit, digits=6)
            detail = f"{name} {said} is {words} clip.prescreen.{bound.setting} {digits.bound(limit)}"
            found.setdefault(key, row_error("prescreened", detail))
    return found
