"""How each score is shown: its name for people, its range, and the bounds that selection holds it to."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from interleaved_assets.selection.filters import ImageFilter, SampleFilter, Values, find_filter, known_filters
from interleaved_assets.selection.settings import SelectionSettings

Scale = Literal["linear", "log", "any"]


@dataclass(frozen=True)
class Measure:
    """What one filter judges by, and how it is shown.

    Attributes:
        filter: name of the filter; its reasons in the ledger are ``<filter>_below`` and ``<filter>_above``.
        label: for people, in sentence case.
        short: for people where there is little room, as in a caption under a thumbnail.
        columns: columns of the scores table that it is made of; none where the filter judges samples.
        combine: makes one value of several columns.
        low, high: the range in which values are told apart; those beyond are counted together at either end.
        scale: ``linear``; ``log`` for values above 0 that span orders of magnitude; ``any`` for values of which nothing
            is known, which are told apart by ratio on either side of 0, and then ``low`` and ``high`` have no meaning.
        minimum: what is kept is at least this; None for no bound.
        maximum: what is kept is at most this, or below it where ``open_maximum`` is set; None for no bound.
        open_maximum: whether a value equal to the maximum is dropped.
        unit: what it judges, ``image`` or ``sample``.
        zero_means: completes ``12 …`` for values of exactly 0, where these would dwarf all others in a plot.
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

    @property
    def has_bounds(self) -> bool:
        """Whether its filter can drop anything."""
        return self.minimum is not None or self.maximum is not None

    @property
    def rule(self) -> str:
        """The bounds in words, such as ``keep ≥ 100``; ``no bound`` where there is none."""
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


_SHOWN: Final = {
    measure.filter: measure
    for measure in (
        Measure("short_side", "Short side, pixels", "short side", low=1, high=1e5, scale="log"),
        Measure("long_side", "Long side, pixels", "long side", low=1, high=1e5, scale="log"),
        Measure("aspect", "Aspect ratio", "aspect", low=0.02, high=50, scale="log"),
        Measure("sharpness", "Sharpness", "sharpness", low=1e-2, high=1e5, scale="log"),
        Measure("sharpness_grey", "Sharpness in grey", "grey sharpness", low=1e-2, high=1e5, scale="log"),
        Measure("sharpness_256", "Sharpness at 256 pixels", "sharpness 256", low=1e-2, high=1e5, scale="log"),
        Measure("qr", "QR code area", "QR area", zero_means="without a QR code"),
        Measure("nsfw", "NSFW probability", "NSFW"),
        Measure(
            "ratio",
            "Images for each word",
            "ratio",
            low=1e-5,
            high=1e3,
            scale="log",
            unit="sample",
            zero_means="without an image",
        ),
        Measure("clip", "CLIP similarity", "CLIP", low=-1),
        Measure("aesthetic", "Aesthetic score", "aesthetic", low=-10, high=20),
        Measure("nsfw_clip", "NSFW score of the CLIP head", "NSFW (CLIP)", low=-1, high=2),
    )
}
"""How the scores of this package are shown; any other is shown by its filter's name, whatever its range."""


def measure_of(name: str, selection: SelectionSettings) -> Measure:
    """How the filter ``name`` is shown, with the bounds it has in ``selection``."""
    judge = find_filter(name)
    minimum, maximum = selection.bounds(name)
    shown = _SHOWN.get(name, Measure(name, name, name, scale="any"))
    if isinstance(judge, ImageFilter):
        shown = replace(shown, columns=judge.columns, combine=judge.combine)
    return replace(shown, minimum=minimum, maximum=maximum, open_maximum=judge.open_maximum)


def measures_of(selection: SelectionSettings, *, unbounded: bool = False) -> list[Measure]:
    """The filters that judge, in their order; with ``unbounded`` then also the other scores worth seeing."""
    names = list(selection.active_filters())
    if unbounded:
        # of the two sides the shorter one tells more
        names += [
            name
            for name in known_filters()
            if name not in names and name != "long_side" and not isinstance(find_filter(name), SampleFilter)
        ]
    return [measure_of(name, selection) for name in names]
