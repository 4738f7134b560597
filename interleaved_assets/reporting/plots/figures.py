"""The charts of the report on the data set: kept and dropped rows, histograms of scores, keep rates over bounds.

Each is an ``<svg>`` for an HTML page, whose style gives its classes the colours of the theme.
"""

import math
from collections.abc import Callable, Mapping
from html import escape
from typing import Final

import numpy as np
from markupsafe import Markup

from interleaved_assets.model import digits
from interleaved_assets.reporting.figures.distribution import Distribution
from interleaved_assets.reporting.figures.measures import Measure
from interleaved_assets.reporting.plots.bins import counted, display_edges, on_axis, summary
from interleaved_assets.reporting.plots.svg import (
    HEADROOM,
    MARGIN,
    TOP,
    Area,
    bars_and_bounds,
    places,
    reasons,
    round_values,
    title_text,
)
from interleaved_assets.reporting.wording import text

_WIDTH: Final = 400
_HEIGHT: Final = 216
_REASONS_WIDTH: Final = 670
_AREA: Final = Area(56, _WIDTH - MARGIN, TOP + 4, _HEIGHT - 36)
_MOST_TICKS: Final = 7
_MOST_LINES: Final = 5


def reasons_bar(kept: int, dropped: Mapping[str, int]) -> Markup:
    """Draw bars of kept rows and of dropped rows by reason, the most frequent first; rare reasons share one bar."""
    bars, height = reasons(kept, dropped)
    return _chart(bars, "Rows kept, and rows dropped by reason", _REASONS_WIDTH, height)


def score_charts(distribution: Distribution) -> list[Markup]:
    """Draw the histogram, and a keep-rate curve for each bound in force; without bounds, the curve of the minimum."""
    bounds = [name for name in ("minimum", "maximum") if getattr(distribution.measure, name) is not None]
    return [score_histogram(distribution), *(keep_rate_curve(distribution, bound) for bound in bounds or ["minimum"])]


def score_histogram(distribution: Distribution) -> Markup:
    """Draw the histogram of one score with the bounds drawn in and the dropped side shaded.

    If the measure has ``zero_means``, values of exactly 0 are counted in the subtitle and have no bar. Without values,
    the chart has a text instead.
    """
    measure = distribution.measure
    head, description = title_text("Distribution", summary(distribution)), f"Histogram of {measure.shown.label}"
    if not distribution.shown:
        return _nothing(head, description)
    edges = display_edges(distribution)
    counts = distribution.histogram(edges)
    most = int(counts.max())
    # the scale leaves room above the bars
    height = _heights(0, most * (_AREA.bottom - _AREA.top) / (_AREA.bottom - _AREA.top - HEADROOM))
    lines = {height(value): f"{value:,.0f}" for value in round_values(0, most, _MOST_LINES) if value % 1 == 0}
    axes = _axes(edges, measure, lines, measure.axis, f"{measure.unit}s")
    return _chart(f"{head}{axes}{bars_and_bounds(distribution, edges, counts, _AREA)}", description)


def keep_rate_curve(distribution: Distribution, bound: str) -> Markup:
    """Draw the keep rate over values of a bound (``"minimum"`` or ``"maximum"``), and mark the value in force.

    The values are those that :func:`score_histogram` shows, so that both have the same axis.
    """
    measure = distribution.measure
    edges = display_edges(distribution) if distribution.count else np.empty(0)
    thresholds, rates = distribution.keep_curve(bound, (edges[0], edges[-1])) if len(edges) else (edges, edges)
    in_force = measure.minimum if bound == "minimum" else measure.maximum
    what = f"What {'a' if in_force is None else 'another'} {bound} would keep"
    head = title_text(what, _now(distribution, in_force))
    description = f"Keep rate over the {bound} of {measure.shown.label}"
    if not len(thresholds):
        return _nothing(head, description)
    if measure.shown.zero_means and bound == "maximum" and thresholds[0] <= 0:
        # a maximum of 0 keeps nothing, and the step from 0 would fill the plot
        thresholds, rates = thresholds[1:], rates[1:]
    # for a filter that drops little, only part of the axis is shown; a filled area would suggest that it starts at 0
    is_part = rates.min() > 0.6
    bottom = math.floor(rates.min() * 20) * 5 - 5 if is_part else 0
    height, place = (
        _heights(bottom, 100 + 0.04 * (100 - bottom)),
        places(edges, _AREA, log=measure.shown.scale == "log"),
    )
    curve = "L".join(f"{place(at)},{height(100 * rate)}" for at, rate in zip(thresholds, rates, strict=True))
    drawn = [head]
    if not is_part:
        ends = f"L{place(thresholds[-1])},{_AREA.bottom}L{place(thresholds[0])},{_AREA.bottom}"
        drawn.append(f"<path class='f' d='M{curve}{ends}'/>")
    lines = {height(value): f"{value:g} %" for value in round_values(bottom, 100, _MOST_LINES)}
    drawn.append(_axes(edges, measure, lines, f"{bound} of {_uncapitalized(measure.axis)}", f"{measure.unit}s kept"))
    drawn.append(f"<path class='c' d='M{curve}'/>")
    if on_axis(in_force, measure) and distribution.keep_rate is not None:
        at = place(in_force)
        drawn.append(f"<path class='n' d='M{at},{_AREA.top}V{_AREA.bottom}'/>")
        drawn.append(f"<circle class='k b' cx='{at}' cy='{height(100 * distribution.keep_rate)}' r='4'/>")
    return _chart("".join(drawn), description)


def _uncapitalized(label: str) -> str:
    """Return ``label`` for the middle of a sentence; abbreviations such as QR keep their capitals."""
    return label if label[1:2].isupper() else label[:1].lower() + label[1:]


def _now(distribution: Distribution, in_force: float | None) -> str:
    if in_force is None:
        return f"{counted(distribution)}  ·  no bound in force"
    if distribution.keep_rate is None:
        return f"{counted(distribution)}  ·  {digits.bound(in_force)} in force"
    kept = text.share(distribution.kept, distribution.count)
    return f"{counted(distribution)}  ·  now {kept} at {digits.bound(in_force)}"


def _heights(low: float, high: float) -> Callable[[float], float]:
    """Return a function from a value to its place on the vertical axis, in tenths of a pixel."""
    return lambda value: round(_AREA.bottom - (value - low) / (high - low) * (_AREA.bottom - _AREA.top), 1)


def _axes(edges: np.ndarray, measure: Measure, lines: Mapping[float, str], horizontal: str, vertical: str) -> str:
    """Draw the horizontal axis over ``edges``, the lines with their labels by height, and the titles of both axes."""
    is_log = measure.shown.scale == "log"
    place = places(edges, _AREA, log=is_log)
    drawn = []
    for y, label in lines.items():
        drawn.append(f"<path class='g' d='M{_AREA.left},{y}H{_AREA.right}'/>")
        drawn.append(f"<text class='e' x='{_AREA.left - 6}' y='{y + 3}'>{label}</text>")
    drawn.append(f"<path class='a' d='M{_AREA.left},{_AREA.bottom}H{_AREA.right}'/>")
    drawn += [
        f"<text class='m' x='{place(tick)}' y='{_AREA.bottom + 14}'>{tick:,g}</text>"
        for tick in round_values(float(edges[0]), float(edges[-1]), _MOST_TICKS, log=is_log)
    ]
    middle = (_AREA.top + _AREA.bottom) // 2
    drawn.append(f"<text class='m' x='{(_AREA.left + _AREA.right) // 2}' y='{_HEIGHT - 6}'>{escape(horizontal)}</text>")
    drawn.append(f"<text class='m' transform='translate(14,{middle}) rotate(-90)'>{escape(vertical)}</text>")
    return "".join(drawn)


def _nothing(head: str, description: str) -> Markup:
    middle = f"class='m' x='{_WIDTH // 2}' y='{_HEIGHT // 2}'"
    return _chart(f"{head}<text {middle}>No values to show</text>", description)


def _chart(drawn: str, description: str, width: int = _WIDTH, height: int = _HEIGHT) -> Markup:
    """Return ``drawn``, whose texts are escaped, as a chart; ``description`` is the text for screen readers."""
    return Markup(f'<svg role="img" aria-label="{escape(description)}" viewBox="0 0 {width} {height}">{drawn}</svg>')
