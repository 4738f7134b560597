"""The distribution of a score: all of its values, so that counts, percentiles and keep rates are exact."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interleaved_assets.reporting.figures.measures import Measure
from interleaved_assets.scoring.protocol.values import Values

_PLACES = 4096
_CURVE_PLACES = 160


class Gap(NamedTuple):
    """An interval without values between its ends; ``low`` may be a value itself, and so may ``high``."""

    low: float
    """Lower end; -inf for the gap below all values."""
    high: float
    """Upper end; inf for the gap above all values."""
    below: int
    """Number of values up to ``low``; all others are from ``high`` on."""


class Distribution:
    """The values of one score over any number of shards.

    They take 8 bytes each, and up to twice that while they are sorted: 160 MB for 10 million images.
    """

    def __init__(self, measure: Measure) -> None:
        self.measure = measure
        self.missing = 0
        self._sorted: Values = np.empty(0)
        self._added: list[Values] = []

    def add(self, values: Values) -> None:
        """Add ``values`` (float64); NaN counts as missing."""
        present = values[~np.isnan(values)]
        self.missing += len(values) - len(present)
        self._added.append(present)

    @property
    def values(self) -> Values:
        """All values that are not missing, ascending."""
        if self._added:
            self._sorted = np.concatenate([self._sorted, *self._added])
            self._added.clear()
            self._sorted.sort()
        return self._sorted

    @property
    def count(self) -> int:
        """Number of values that are not missing."""
        return len(self.values)

    @property
    def zeros(self) -> int:
        """Number of values that are exactly 0."""
        first, after = np.searchsorted(self.values, 0.0, "left"), np.searchsorted(self.values, 0.0, "right")
        return int(after - first)

    @property
    def below(self) -> int:
        """Number of values that the minimum in force drops."""
        return 0 if self.measure.minimum is None else int(self._dropped_by("minimum", self.measure.minimum))

    @property
    def above(self) -> int:
        """Number of values that the maximum in force drops."""
        return 0 if self.measure.maximum is None else int(self._dropped_by("maximum", self.measure.maximum))

    @property
    def kept(self) -> int:
        """Number of values that the bounds in force keep, this filter taken alone."""
        return max(self.count - self.below - self.above, 0)

    @property
    def keep_rate(self) -> float | None:
        """Share of the values that the bounds keep, this filter taken alone; None without values."""
        return self.kept / self.count if self.count else None

    @property
    def mean(self) -> float | None:
        """Mean of the values; None without any."""
        with np.errstate(invalid="ignore"):  # infinities of both signs add up to NaN, and so the mean is NaN
            return float(self.values.mean()) if self.count else None

    def percentiles(self, percents: tuple[float, ...]) -> list[float]:
        """Return the values at ``percents`` (0 to 100), interpolated linearly as by ``numpy.percentile``.

        Unlike there, every interpolated value between a finite and an infinite one is infinite. The result is empty
        without values.
        """
        if not self.count:
            return []
        ranks = np.asarray(percents) / 100 * (self.count - 1)
        below = np.floor(ranks).astype(np.int64)
        lower, upper = self.values[below], self.values[np.minimum(below + 1, self.count - 1)]
        with np.errstate(invalid="ignore"):
            distance = upper - lower
            inside = np.where(np.isfinite(distance), lower + (ranks - below) * distance, upper)
        return np.where((ranks == below) | (lower == upper), lower, inside).tolist()

    def gaps(self, most: int) -> list[Gap]:
        """Return gaps between values, at up to ``most`` places that are evenly chosen on the axis, in ascending order.

        The first gap is below all values and the last one above them. No value is inside a gap, so counts on either
        side of it are exact.
        """
        if not self.count:
            return []
        axis = _axis(self.measure)
        first, last = np.searchsorted(axis, self.values[[0, -1]], "right") - [1, 0]
        at = np.unique(np.linspace(first, last, min(most, last - first + 1)).round().astype(np.int64)) + 1
        places, ends = np.concatenate([[-np.inf], axis, [np.inf]]), np.concatenate([[-np.inf], self.values, [np.inf]])
        below = np.searchsorted(self.values, places[at], "left")
        # a gap wider than the distance of two places is cut to it
        low = np.maximum(ends[below], places[np.concatenate([at[:1], at[:-1]])])
        high = np.minimum(ends[below + 1], places[np.concatenate([at[1:], at[-1:]])])
        return [Gap(*gap) for gap in zip(low.tolist(), high.tolist(), below.tolist(), strict=True)]

    def keep_curve(self, bound: str, ends: tuple[float, float]) -> tuple[Values, Values]:
        """Return values of one bound, ``"minimum"`` or ``"maximum"``, and the keep rate at each.

        The other bound stays. The values go from one of ``ends`` to the other, on the scale of the measure. The result
        is empty without values.
        """
        if not self.count:
            return np.empty(0), np.empty(0)
        span = np.geomspace if self.measure.shown.scale == "log" else np.linspace
        thresholds = np.unique(span(*ends, _CURVE_PLACES))
        other = self.above if bound == "minimum" else self.below
        return thresholds, np.maximum(self.count - self._dropped_by(bound, thresholds) - other, 0) / self.count

    @property
    def shown(self) -> int:
        """Number of values that a histogram shows: values of 0 are left out if the measure has ``zero_means``."""
        return self.count - (self.zeros if self.measure.shown.zero_means else 0)

    def histogram(self, edges: Values) -> NDArray[np.int64]:
        """Count the values shown between ascending ``edges``; the outer bins include all values beyond."""
        values = self.values[self.values != 0] if self.measure.shown.zero_means else self.values
        return np.diff(np.searchsorted(values, edges[1:-1], "left"), prepend=0, append=len(values))

    def _dropped_by(self, bound: str, thresholds: Values | float) -> NDArray[np.int64]:
        """Count the values that a minimum or a maximum at each of ``thresholds`` drops."""
        if bound == "minimum":
            return np.asarray(np.searchsorted(self.values, thresholds, "left"))
        side: Literal["left", "right"] = "left" if self.measure.judge.open_maximum else "right"
        return np.asarray(self.count - np.searchsorted(self.values, thresholds, side))


def _axis(measure: Measure) -> Values:
    """Return places over the range of a measure, ascending, equally spaced on its scale."""
    match measure.shown.scale:
        case "log":
            places = np.geomspace(measure.shown.low, measure.shown.high, _PLACES + 1)
        case "linear":
            places = np.linspace(measure.shown.low, measure.shown.high, _PLACES + 1)
        case _:
            side = np.geomspace(1e-4, 1e6, _PLACES // 2)
            places = np.concatenate([-side[::-1], side])
    # 0 is often the most frequent value, so there is one place on either side of it
    around_zero = [0.0, np.nextafter(0.0, 1.0)] if measure.shown.low <= 0 <= measure.shown.high else []
    return np.union1d(places, around_zero)
