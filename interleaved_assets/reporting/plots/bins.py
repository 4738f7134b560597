"""The bins of a score's histogram, and the texts above it."""

import math
from collections.abc import Mapping
from typing import Final, TypeGuard

import numpy as np

from interleaved_assets.model.digits import bound
from interleaved_assets.reporting.figures.distribution import Distribution
from interleaved_assets.reporting.figures.measures import Measure
from interleaved_assets.reporting.wording import text

DISPLAY_BINS: Final = 56
_FURTHEST: Final = 1e6
"""End of the axis of a measure of unknown range."""


def display_edges(distribution: Distribution, bins: int = DISPLAY_BINS) -> np.ndarray:
    """Return the edges of about ``bins`` equal bins over the values shown, with every bound in force on one edge.

    The edges are ascending, float64. For a logarithmic measure the bins are equal in ratio. ``distribution`` has at
    least one value.
    """
    measure = distribution.measure
    zeros = distribution.zeros / distribution.count if measure.shown.zero_means else 0
    # percentiles of the values drawn, that is, without the zeros at the lower end
    ends = distribution.percentiles((min(100 * zeros + 0.2 * (1 - zeros), 100), 99.8))
    axis = (-_FURTHEST, _FURTHEST) if measure.shown.scale == "any" else (measure.shown.low, measure.shown.high)
    low, high = (float(value) for value in np.clip(ends, *axis))
    if from_zero := bool(measure.shown.zero_means) and measure.shown.scale != "log":
        low = 0.0
    bounds = [value for value in (measure.minimum, measure.maximum) if on_axis(value, measure)]
    low, high = min([low, *bounds]), max([high, *bounds])
    if measure.shown.scale == "log":
        low, high = math.log10(low), math.log10(high)
        bounds = [math.log10(value) for value in bounds]
    pad = max((high - low) * 0.04, abs(high) * 0.02, 1e-9)
    low, high = (low if from_zero else low - pad), high + pad
    step = (high - low) / bins
    anchor = bounds[0] if bounds else low
    edges = anchor + step * np.arange(math.floor((low - anchor) / step), math.ceil((high - anchor) / step) + 1)
    for value in bounds[1:]:
        edges[np.argmin(np.abs(edges - value))] = value
    if from_zero and edges[0] < 0:
        edges = np.concatenate([[0.0], edges[edges > step / 4]])
    return 10**edges if measure.shown.scale == "log" else edges


def kept_bins(edges: np.ndarray, measure: Measure) -> np.ndarray:
    """Return which bins between ``edges`` the bounds keep, one bool each."""
    log = measure.shown.scale == "log"
    return measure.keeps(np.sqrt(edges[1:] * edges[:-1]) if log else (edges[1:] + edges[:-1]) / 2)


def on_axis(bound: float | None, measure: Measure) -> TypeGuard[float]:
    """Return whether there is a bound that can be drawn: a logarithmic axis has no 0."""
    return bound is not None and (measure.shown.scale != "log" or bound > 0)


def bounds_to_draw(measure: Measure) -> list[tuple[float, str, int]]:
    """Return each bound that can be drawn, its label, and the side that it keeps: 1 for larger values, else -1."""
    sides = ((measure.minimum, measure.sign("minimum"), 1), (measure.maximum, measure.sign("maximum"), -1))
    return [(value, f"keep {sign} {bound(value)}", side) for value, sign, side in sides if on_axis(value, measure)]


def summary(distribution: Distribution) -> str:
    """Describe in one line how many values there are, which share passes, and how many are not shown."""
    measure = distribution.measure
    parts = [counted(distribution)]
    if distribution.keep_rate is not None and measure.has_bounds:
        parts.append(f"{text.share(distribution.kept, distribution.count)} pass")
    if measure.shown.zero_means and distribution.zeros:
        parts.append(f"{text.compact(distribution.zeros)} {measure.shown.zero_means}")
    if distribution.missing:
        parts.append(f"{text.compact(distribution.missing)} without a score")
    return "  ·  ".join(parts)


def counted(distribution: Distribution) -> str:
    """Return the number of values with its unit."""
    return f"{text.compact(distribution.count)} {distribution.measure.unit}{'' if distribution.count == 1 else 's'}"


def shown_reasons(dropped: Mapping[str, int], most: int) -> list[tuple[str, int]]:
    """Return at most ``most`` reasons with their counts, the most frequent first; rare reasons share the last one."""
    ordered = text.most_frequent(dropped)
    if len(ordered) > most:
        rest = ordered[most - 1 :]
        ordered = [*ordered[: most - 1], (f"{len(rest)} other reasons", sum(count for _, count in rest))]
    return ordered
