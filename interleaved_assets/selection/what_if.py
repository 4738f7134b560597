"""Compute from stored scores what other thresholds would keep."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import ValidationError

from interleaved_assets.model.errors import SettingsError
from interleaved_assets.model.ledger import drop_reasons
from interleaved_assets.selection.filters import SampleFilter, Values, find_filter
from interleaved_assets.selection.judge import image_values
from interleaved_assets.selection.select import applicable_filters, require_columns, run_filters, select
from interleaved_assets.selection.settings import SelectionSettings


@dataclass(frozen=True)
class Outcome:
    """Counts of a selection; the sum of the outcomes of shards is the outcome of a data set."""

    rows: int = 0
    rows_kept: int = 0
    images: int = 0
    images_kept: int = 0
    samples: int = 0
    samples_kept: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Rows dropped, by reason."""
    images_dropped: Mapping[str, int] = field(default_factory=dict)
    """Images dropped, by reason."""

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(
            self.rows + other.rows,
            self.rows_kept + other.rows_kept,
            self.images + other.images,
            self.images_kept + other.images_kept,
            self.samples + other.samples,
            self.samples_kept + other.samples_kept,
            dict(Counter(self.dropped) + Counter(other.dropped)),
            dict(Counter(self.images_dropped) + Counter(other.images_dropped)),
        )


def what_if(
    rows: pa.Table, scores: pa.Table, settings: SelectionSettings, overrides: Mapping[str, object] | None = None
) -> Outcome:
    """Count what ``select`` would keep of one shard with changed settings.

    Args:
        rows: as for :func:`~interleaved_assets.selection.select.select`.
        scores: as for ``select``.
        settings: the current settings.
        overrides: settings to change, by name, such as ``{"min_sharpness": 80}``.

    Raises:
        SettingsError: an override is no setting, has a wrong type or is out of range.
        OptionError: a filter needs a column that the scores lack.
        ScoreError: an image has no score that a filter needs, and ``on_score_error`` is ``error``.
    """
    selection = select(rows, scores, changed_settings(settings, overrides or {}))
    kept, is_image = rows.filter(selection.keep), pc.equal(rows["modality"], "image")
    ledger = selection.ledger
    return Outcome(
        rows=rows.num_rows,
        rows_kept=kept.num_rows,
        images=_count(is_image),
        images_kept=_count(pc.equal(kept["modality"], "image")),
        samples=pc.count_distinct(rows["sample_id"]).as_py(),
        samples_kept=pc.count_distinct(kept["sample_id"]).as_py(),
        dropped=drop_reasons(ledger),
        images_dropped=drop_reasons(ledger.filter(pc.equal(ledger["modality"], "image"))),
    )


def changed_settings(settings: SelectionSettings, overrides: Mapping[str, object]) -> SelectionSettings:
    """A validated copy of ``settings`` with ``overrides``.

    Raises:
        SettingsError: an override is no setting, has a wrong type or is out of range.
    """
    try:
        return SelectionSettings.model_validate({**settings.model_dump(), **overrides})
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc']) or 'selection'}: {problem['msg']}"
            for problem in error.errors()
        )
        raise SettingsError(f"what if: {problems}") from error


def judged_values(rows: pa.Table, scores: pa.Table, settings: SelectionSettings, name: str) -> Values:
    """The values that the filter ``name`` would compare, after the filters before it in the order.

    One value per image that is left, NaN if its score is missing; for a filter of samples one per sample that has
    content left. The filter needs no bound; if the order does not name it, it comes last.

    Raises:
        OptionError: a filter needs a column that the scores lack.
        ScoreError: an image has no score that a filter before this one needs, and ``on_score_error`` is ``error``.
    """
    judge = find_filter(name)
    require_columns(judge, scores)
    judging, _ = applicable_filters(settings, scores)
    order = settings.full_order()
    place = order.index(name) if name in order else len(order)
    before = [other for other in judging if other in order[:place]]
    state, matched, _ = run_filters(before, rows, scores, settings)
    if isinstance(judge, SampleFilter):
        return judge.measure(state.counts())[state.with_content()]
    return image_values(judge, scores, matched[state.alive[state.images]])


def keep_rates(
    values: Values, name: str, thresholds: Sequence[float] | NDArray[np.float64], side: Literal["minimum", "maximum"]
) -> NDArray[np.float64]:
    """Share of ``values`` that the filter ``name`` would keep at each threshold.

    Args:
        values: measured values, as from :func:`judged_values` or a column of scores; NaN (missing) is ignored.
        name: the filter; it defines whether a value equal to the maximum is kept.
        thresholds: values of the bound, in any order.
        side: which bound the thresholds are.

    Returns:
        For each threshold a share from 0 to 1; NaN if there are no values.
    """
    known = values[~np.isnan(values)]
    if not len(known):
        return np.full(len(thresholds), np.nan)
    strictly = side == "minimum" or find_filter(name).open_maximum
    smaller = np.searchsorted(np.sort(known), thresholds, side="left" if strictly else "right") / len(known)
    return 1 - smaller if side == "minimum" else smaller


def _count(mask: pa.ChunkedArray) -> int:
    return int(pc.sum(mask, min_count=0).as_py())
