"""How each score is shown, as its filter says, with the bounds that selection applies."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from interleaved_assets.scoring.filter import Display, Scale
from interleaved_assets.scoring.registry import SIZE, find_scorer
from interleaved_assets.selection.filters import ImageFilter, find_filter, known_filters
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets.selection.values import Values

SIZE_COLUMNS: Final = frozenset(find_scorer(SIZE).columns)
"""Scores that follow from the size of an image, which is shown instead."""
CLIP_TEXT: Final = "clip_text_position"
"""The column with the position of the text that CLIP found nearest to an image."""


@dataclass(frozen=True)
class Measure:
    """The value that one filter compares with its bounds, and how it is shown.

    Attributes:
        filter: name of the filter; its reasons in the ledger are ``<filter>_below`` and ``<filter>_above``.
        label: for axes and tables, in sentence case.
        short: label for little space, such as the caption under a thumbnail.
        columns: columns of the scores table that it is computed from; none where the filter is on samples.
        low, high: the range that is divided into bins; values outside are counted together at either end.
        scale: ``linear``; ``log`` for values above 0 that span orders of magnitude; ``any`` for values of
            unknown range, with bins of equal ratio on either side of 0; then ``low`` and ``high`` are not used.
        maximum: largest kept value; with ``open_maximum`` kept values are below it; None for no bound.
        open_maximum: whether a value equal to the maximum is dropped.
        unit: what has a value, ``image`` or ``sample``.
        scale_of: what the value is measured in, for the axis; none where the label says it.
        zero_means: text after the number of values that are exactly 0, where the plot leaves these out.
    """

    filter: str
    label: str
    short: str
    columns: tuple[str, ...] = ()
    combine: Callable[..., Values] | None = None
    low: float = 0.0
    high: float = 1.0
    scale: Scale = "linear"
    minimum: float | None = None
    maximum: float | None = None
    open_maximum: bool = False
    zero_means: str | None = None
    unit: Literal["image", "sample"] = "image"
    scale_of: str = ""

    @property
    def has_bounds(self) -> bool:
        """Whether its filter can drop anything."""
        return self.minimum is not None or self.maximum is not None

    @property
    def axis(self) -> str:
        """Title of the axis with its values: the label, and what they are measured in."""
        return f"{self.label} ({self.scale_of})" if self.scale_of else self.label

    @property
    def rule(self) -> str:
        """The bounds as text, such as ``keep ≥ 100``; ``no bound`` without any."""
        parts = []
        if self.minimum is not None:
            parts.append(f"≥ {self.minimum:g}")
        if self.maximum is not None:
            parts.append(f"{'<' if self.open_maximum else '≤'} {self.maximum:g}")
        return f"keep {' and '.join(parts)}" if parts else "no bound"

    def values(self, scores: pa.Table) -> Values | None:
        """Its value for each row of ``scores``, NaN where a score is missing; None where ``scores`` lacks a column."""
        if not self.columns or not set(self.columns) <= set(scores.column_names):
            return None
        columns = [scores[name].cast(pa.float64()).to_numpy() for name in self.columns]
        return columns[0] if self.combine is None else np.asarray(self.combine(*columns), np.float64)

    def keeps(self, values: Values) -> NDArray[np.bool_]:
        """Which of ``values`` the bounds keep, one bool each; NaN is never kept."""
        kept = ~np.isnan(values)
        if self.minimum is not None:
            kept &= values >= self.minimum
        if self.maximum is not None:
            kept &= (values < self.maximum) if self.open_maximum else (values <= self.maximum)
        return kept


def measure_of(name: str, selection: SelectionSettings) -> Measure:
    """Return how the filter ``name`` is shown, with the bounds it has in ``selection``."""
    judge = find_filter(name)
    minimum, maximum = selection.bounds(name)
    shown = judge.display or Display(name, name, scale="any")
    return Measure(
        name,
        shown.label,
        shown.short,
        columns=judge.columns if isinstance(judge, ImageFilter) else (),
        combine=judge.combine if isinstance(judge, ImageFilter) else None,
        low=shown.low,
        high=shown.high,
        scale=shown.scale,
        minimum=minimum,
        maximum=maximum,
        open_maximum=judge.open_maximum,
        zero_means=shown.zero_means,
        unit="image" if isinstance(judge, ImageFilter) else "sample",
        scale_of=shown.unit,
    )


def measures_of(selection: SelectionSettings) -> list[Measure]:
    """Return the filters with bounds, in their order, and then the other scores of images."""
    names = list(selection.active_filters())
    others = {name: find_filter(name) for name in known_filters() if name not in names}
    names += [
        name
        for name, judge in others.items()
        if isinstance(judge, ImageFilter) and not (judge.display and judge.display.only_bounded)
    ]
    return [measure_of(name, selection) for name in names]
