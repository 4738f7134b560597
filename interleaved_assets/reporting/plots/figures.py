"""Plots: the histogram of a score, kept and dropped rows, the keep rate over a threshold."""

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from interleaved_assets.reporting import text
from interleaved_assets.reporting.measures import Measure
from interleaved_assets.reporting.plots.bins import (
    bounds_to_draw,
    counted,
    display_edges,
    kept_bins,
    on_axis,
    shown_reasons,
    summary,
)
from interleaved_assets.reporting.plots.colours import DROPPED, GRID, INK, KEPT, MUTED, SHADE
from interleaved_assets.reporting.plots.style import STANDARD, Size, new_figure, title_axes, write_title
from interleaved_assets.reporting.sketch import ScoreSketch

BAR_WIDTH = 0.92  # of its bin
MOST_REASONS = 8
LABEL_ROOM = 0.2  # width of the label of a bound, as a share of the width of the axes


def score_histogram(sketch: ScoreSketch, title: str | None = None, size: Size = STANDARD) -> Figure:
    """Histogram of one score with the bounds drawn in and the dropped side shaded.

    Where the measure has ``zero_means``, values of exactly 0 are counted in the subtitle and have no bar. Without
    values, the plot has a text instead. The default title is the label of the measure.
    """
    measure = sketch.measure
    figure, axes = new_figure(size)
    shown = sketch.count - (sketch.zeros if measure.zero_means else 0)
    write_title(figure, title or measure.label, summary(sketch))
    if not shown:
        return _nothing(figure, axes)
    edges = display_edges(sketch)
    counts = sketch.histogram(edges, without_zeros=measure.zero_means is not None)
    kept = kept_bins(edges, measure)
    if measure.scale == "log":
        axes.set_xscale("log")
    for side, colour in ((kept, KEPT), (~kept, DROPPED)):
        axes.add_collection(_bars(edges, counts, side & (counts > 0), colour), autolim=False)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, counts.max() * 1.12)
    _shade_dropped(axes, measure, edges[0], edges[-1])
    _draw_bounds(axes, measure)
    _value_axis(axes, measure)
    title_axes(axes, measure.axis, f"{measure.unit}s")
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    return figure


def reasons_bar(kept: int, dropped: Mapping[str, int]) -> Figure:
    """Bars of kept rows and of dropped rows by reason, the most frequent first; rare reasons share one bar."""
    ordered = shown_reasons(dropped, MOST_REASONS)
    bars = [("kept", kept), *ordered]
    total = kept + sum(dropped.values())
    figure, axes = new_figure(Size(STANDARD.width, 0.95 + 0.27 * len(bars)))
    height = figure.get_figheight()
    came = f"{total:,} rows in  ·  {text.share(kept, total)} kept" if total else "nothing came in"
    write_title(figure, "Kept and dropped", came)
    longest = max(len(name) for name, _ in bars)
    left = min(0.05 + 0.0112 * longest, 0.42)
    # room for the counts to the right of the longest bar
    axes.set_position((left, 0.12 / height, 0.80 - left, 1 - 0.86 / height))
    rows = np.arange(len(bars))[::-1]
    colours = [KEPT, *[DROPPED] * len(ordered)]
    axes.barh(rows, [count for _, count in bars], 0.62, color=colours, linewidth=0)
    for row, (_, count) in zip(rows, bars, strict=True):
        label = f"{count:,}  ({text.share(count, total)})" if total else "0"
        axes.annotate(label, (count, row), (6, 0), textcoords="offset points", va="center", color=INK, fontsize=9)
    axes.set_yticks(rows, [name for name, _ in bars], color=INK, parse_math=False)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.set_xlim(0, max(total, 1) if not ordered else max(max(count for _, count in bars), 1))
    axes.set_ylim(-0.6, len(bars) - 0.4)
    return figure


def keep_rate_curve(sketch: ScoreSketch, bound: str, title: str | None = None, size: Size = STANDARD) -> Figure:
    """Keep rate over possible values of a bound (``"minimum"`` or ``"maximum"``); the value in force is marked.

    The values are those that :func:`score_histogram` shows, so that both have the same axis.
    """
    measure = sketch.measure
    edges = display_edges(sketch) if sketch.count else np.empty(0)
    thresholds, rates = sketch.keep_curve(bound, (edges[0], edges[-1])) if len(edges) else (edges, edges)
    in_force = measure.minimum if bound == "minimum" else measure.maximum
    figure, axes = new_figure(size)
    write_title(figure, title or f"{measure.label}: {curve_title(measure, bound)}", _now(sketch, in_force))
    if not len(thresholds):
        return _nothing(figure, axes)
    if measure.zero_means and bound == "maximum" and thresholds[0] <= 0:
        # a maximum of 0 keeps nothing: the step from 0 would fill the plot
        thresholds, rates = thresholds[1:], rates[1:]
    axes.plot(thresholds, rates * 100, color=KEPT, linewidth=2, solid_joinstyle="round")
    if measure.scale == "log":
        axes.set_xscale("log")
    axes.set_xlim(edges[0], edges[-1])
    if rates.min() > 0.6:
        # a filter that drops little: show part of the axis; a filled area would suggest that the axis starts at 0
        bottom = math.floor(rates.min() * 20) * 5 - 5
        axes.set_ylim(bottom, 100 + (100 - bottom) * 0.05)
    else:
        axes.fill_between(thresholds, rates * 100, color=KEPT, alpha=0.12, linewidth=0)
        axes.set_ylim(0, 104)
    if on_axis(in_force, measure) and sketch.keep_rate is not None:
        axes.axvline(in_force, color=INK, linewidth=1, linestyle=(0, (3, 3)))
        axes.plot([in_force], [sketch.keep_rate * 100], "o", color=KEPT, markeredgecolor=INK, markersize=6)
    _value_axis(axes, measure)
    title_axes(axes, f"{bound} of {_uncapitalized(measure.axis)}", f"{measure.unit}s kept")
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    return figure


def curve_title(measure: Measure, bound: str) -> str:
    return f"what {'a' if getattr(measure, bound) is None else 'another'} {bound} would keep"


def _uncapitalized(label: str) -> str:
    """``label`` within a sentence: abbreviations such as QR keep their capitals."""
    return label if label[1:2].isupper() else label[:1].lower() + label[1:]


def _now(sketch: ScoreSketch, in_force: float | None) -> str:
    if in_force is None:
        return f"{counted(sketch)}  ·  no bound in force"
    if sketch.keep_rate is None:
        return f"{counted(sketch)}  ·  {in_force:g} in force"
    return f"{counted(sketch)}  ·  now {text.share(sketch.keep_rate)} at {in_force:g}"


def _bars(edges: np.ndarray, counts: np.ndarray, shown: np.ndarray, colour: str) -> PolyCollection:
    """The bars of the bins where ``shown``, as one artist: one artist a bar takes twice as long to draw."""
    left, height = edges[:-1][shown], counts[shown]
    right, zero = left + np.diff(edges)[shown] * BAR_WIDTH, np.zeros_like(height)
    corners = np.stack([left, zero, left, height, right, height, right, zero], axis=1).reshape(-1, 4, 2)
    return PolyCollection(list(corners), facecolors=colour, linewidths=0)


def _shade_dropped(axes: Axes, measure: Measure, low: float, high: float) -> None:
    if on_axis(measure.minimum, measure):
        axes.axvspan(low, measure.minimum, color=SHADE, linewidth=0, zorder=0)
    if on_axis(measure.maximum, measure):
        axes.axvspan(measure.maximum, high, color=SHADE, linewidth=0, zorder=0)


def _draw_bounds(axes: Axes, measure: Measure) -> None:
    """A line at each bound, with its value on the kept side where it fits."""
    for value, label, side in bounds_to_draw(measure):
        axes.axvline(value, color=INK, linewidth=1.2)
        along = axes.transAxes.inverted().transform(axes.transData.transform((value, 0)))[0]
        if (room := 1 - along if side > 0 else along) < LABEL_ROOM and room < 1 - room:
            side = -side
        axes.annotate(
            label,
            (value, 1.0),
            (5 * side, -2),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="left" if side > 0 else "right",
            va="top",
            color=INK,
            fontsize=9,
        )


def _value_axis(axes: Axes, measure: Measure) -> None:
    axes.minorticks_off()  # drawing them takes time even at length 0
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    if measure.scale != "log":
        axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
        return
    low, high = axes.get_xlim()
    if high / low > 50:
        return
    # ticks at powers of 10 alone would leave the axis nearly empty
    ticks = [step * 10.0**power for power in range(-3, 7) for step in (1, 2, 5)]
    if high / low < 8:
        ticks = list(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high))
    axes.set_xticks([tick for tick in ticks if low <= tick <= high])


def _nothing(figure: Figure, axes: Axes) -> Figure:
    axes.set_axis_off()
    axes.text(
        0.5, 0.5, "No values to show", color=MUTED, fontsize=11, ha="center", va="center", transform=axes.transAxes
    )
    return figure
