"""The distribution of a score in fixed memory: counts are exact, percentiles are exact or within a bin's width."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from interleaved_assets.reporting.measures import Measure

BINS = 4096


class Gap(NamedTuple):
    """An interval without values between its ends; ``low`` may be a value itself, and so may ``high``."""

    low: float
    """-inf below all values."""
    high: float
    """inf above all values."""
    below: int
    """Values up to ``low``; all others are from ``high`` on."""


class ScoreSketch:
    """Counts of one score over any number of shards, in about 100 KB.

    The number of values, the number missing, the numbers that the bounds keep and that lie below and above them, the
    smallest and largest value and the mean are exact. Values fall into :data:`BINS` bins of equal width (of equal ratio
    for a logarithmic measure) between the measure's ``low`` and ``high``, with one more bin at each end; each bin has
    its smallest and largest value. A percentile is therefore exact where its bin holds at most two different values, as
    in small data sets and for frequent values such as 0, and otherwise off by at most the width of the bin: 1/4096 of
    the range, or 0.4 % of the value for sharpness and 1.1 % for a score of unknown range.
    """

    def __init__(self, measure: Measure) -> None:
        self.measure = measure
        self.edges: np.ndarray = _edges(measure)
        bins = len(self.edges) + 1
        self._counts = np.zeros(bins, np.int64)
        self._lowest = np.full(bins, np.inf)
        self._highest = np.full(bins, -np.inf)
        self._sum = 0.0
        self.missing = 0
        self.zeros = 0
        self.kept = self.below = self.above = 0

    def add(self, values: np.ndarray) -> None:
        """Count ``values`` (float64); NaN counts as missing."""
        present = np.sort(values[~np.isnan(values)])
        self.missing += len(values) - len(present)
        if not len(present):
            return
        bins = np.searchsorted(self.edges, present, side="right")
        # values are sorted: the first and last value of a bin are its smallest and largest
        first = np.concatenate([[0], np.flatnonzero(np.diff(bins)) + 1])
        last = np.concatenate([first[1:], [len(present)]]) - 1
        filled = bins[first]
        self._counts[filled] += last - first + 1
        self._lowest[filled] = np.minimum(self._lowest[filled], present[first])
        self._highest[filled] = np.maximum(self._highest[filled], present[last])
        with np.errstate(invalid="ignore"):  # infinities of both signs add up to NaN, and so the mean is NaN
            self._sum += float(present.sum())
        self.zeros += int(np.count_nonzero(present == 0))
        self.kept += int(np.count_nonzero(self.measure.keeps(present)))
        minimum, maximum = replace(self.measure, maximum=None), replace(self.measure, minimum=None)
        self.below += int(np.count_nonzero(~minimum.keeps(present)))
        self.above += int(np.count_nonzero(~maximum.keeps(present)))

    @property
    def count(self) -> int:
        """Number of values that are not missing."""
        return int(self._counts.sum())

    @property
    def keep_rate(self) -> float | None:
        """Share of the values that the bounds keep, this filter taken alone; None without values."""
        return self.kept / self.count if self.count else None

    @property
    def mean(self) -> float | None:
        """Mean of the values; None without any."""
        return self._sum / self.count if self.count else None

    def percentiles(self, percents: tuple[float, ...]) -> list[float]:
        """Values at ``percents`` (0 to 100), interpolated linearly as by ``numpy.percentile``; empty without values."""
        if not self.count:
            return []
        ranks = np.asarray(percents) / 100 * (self.count - 1)
        below = np.floor(ranks).astype(np.int64)
        lower = self._ranked(below)
        upper = self._ranked(np.minimum(below + 1, self.count - 1))
        return _between(lower, upper, ranks - below).tolist()

    def at_least(self, values: np.ndarray) -> np.ndarray:
        """How many scores are at or above each of ``values``; exact at a bin's edge, interpolated within a bin."""
        cumulative = np.concatenate([[0], np.cumsum(self._counts)])
        bins = np.searchsorted(self.edges, values, side="right")
        lowest, highest = self._lowest[bins], self._highest[bins]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = (values - lowest) / (highest - lowest)
        share = np.where(values <= lowest, 0.0, np.where(values > highest, 1.0, share))
        below = cumulative[bins] + share * self._counts[bins]
        return self.count - below

    def gaps(self, most: int) -> list[Gap]:
        """Places between values, at up to ``most`` evenly chosen edges of bins, in ascending order.

        The first is below all values and the last above them. No value lies inside a gap, so that counts on either
        side of it are exact.
        """
        filled = np.flatnonzero(self._counts)
        if not len(filled):
            return []
        # the edge with number n divides bin n from bin n + 1
        first, last = int(filled[0]) - 1, int(filled[-1])
        at = np.unique(np.linspace(first, last, min(most, last - first + 1)).round().astype(np.int64))
        below = np.concatenate([[0], np.cumsum(self._counts)])[at + 1]
        highest = np.concatenate([[-np.inf], np.maximum.accumulate(self._highest)])[at + 1]
        lowest = np.append(np.minimum.accumulate(self._lowest[::-1])[::-1], np.inf)[at + 1]
        edges = np.concatenate([[-np.inf], self.edges, [np.inf]])
        return [
            Gap(max(over, near), min(under, far), int(count))
            for over, near, under, far, count in zip(
                highest.tolist(),
                edges[np.concatenate([[at[0]], at[:-1]]) + 1].tolist(),
                lowest.tolist(),
                edges[np.concatenate([at[1:], [at[-1]]]) + 1].tolist(),
                below.tolist(),
                strict=True,
            )
        ]

    def keep_curve(self, bound: str, ends: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
        """Keep rate over 160 values of one bound, ``"minimum"`` or ``"maximum"``, while the other bound stays.

        The thresholds lie on bin edges, where counts are exact (values equal to an inclusive maximum aside), and reach
        at least from one of ``ends`` to the other, where there are such edges. Empty without values.
        """
        if not self.count:
            return np.empty(0), np.empty(0)
        span = (np.geomspace if self.measure.scale == "log" else np.linspace)(*ends, 160)
        edge = np.searchsorted(self.edges, span)
        edge = np.unique(np.clip([edge[0] - 1, *edge, edge[-1] + 2], 0, len(self.edges) - 1))
        thresholds = self.edges[edge]
        from_bound, is_minimum = self.at_least(thresholds), bound == "minimum"
        other = self.measure.maximum if is_minimum else self.measure.minimum
        end = (0 if is_minimum else self.count) if other is None else self.at_least(np.array([other]))
        kept = from_bound - end if is_minimum else end - from_bound
        return thresholds, np.maximum(kept, 0) / self.count

    @property
    def shown(self) -> int:
        """Number of values that a histogram shows: those of 0 are left out where the measure has ``zero_means``."""
        return self.count - (self.zeros if self.measure.zero_means else 0)

    def histogram(self, edges: np.ndarray) -> np.ndarray:
        """Counts of the values shown between ascending ``edges``; the outer ones include all values beyond.

        A bin counts at its middle.
        """
        filled = np.flatnonzero(self._counts)
        counts = self._counts[filled].copy()
        middle = (self._lowest[filled] + self._highest[filled]) / 2
        if self.measure.zero_means and self.zeros:
            zero_bin = np.flatnonzero((self._lowest[filled] <= 0) & (self._highest[filled] >= 0))
            counts[zero_bin] -= self.zeros
            middle[zero_bin] = self._highest[filled][zero_bin]
        place = np.clip(np.searchsorted(edges, middle, side="right") - 1, 0, len(edges) - 2)
        return np.bincount(place, weights=counts, minlength=len(edges) - 1).astype(np.int64)

    def _ranked(self, ranks: np.ndarray) -> np.ndarray:
        """The values at ``ranks`` (0 is the smallest), interpolated between the extremes of the bin."""
        cumulative = np.concatenate([[0], np.cumsum(self._counts)])
        bins = np.searchsorted(cumulative, ranks, side="right") - 1
        inside = ranks - cumulative[bins]
        share = inside / np.maximum(self._counts[bins] - 1, 1)
        lowest, highest = self._lowest[bins], self._highest[bins]
        return _between(lowest, highest, share)


def _between(lower: np.ndarray, upper: np.ndarray, share: np.ndarray) -> np.ndarray:
    """The values at ``share`` of the way from ``lower`` to ``upper``; on the way to infinity all are infinite."""
    with np.errstate(invalid="ignore"):
        distance = upper - lower
        # computed from the nearer end, so that both ends are exact
        inside = np.where(share < 0.5, lower + share * distance, upper - (1 - share) * distance)
        inside = np.where(np.isfinite(distance), inside, upper)
    return np.where((share == 0) | (lower == upper), lower, inside)


def _edges(measure: Measure) -> np.ndarray:
    match measure.scale:
        case "log":
            return np.geomspace(measure.low, measure.high, BINS + 1)
        case "linear":
            edges = np.linspace(measure.low, measure.high, BINS + 1)
        case _:
            side = np.geomspace(1e-4, 1e6, BINS // 2)
            edges = np.concatenate([-side[::-1], side])
    # exactly 0 is often the most frequent value: a bin of its own keeps percentiles there exact
    heap = [0.0, np.nextafter(0.0, 1.0)] if measure.low <= 0 <= measure.high else []
    return np.union1d(edges, heap)
