"""Plots as SVG, written as text: about 1 KB a plot, and no plotting library.

This module has the plots of one shard, as one small picture, and the parts that the charts of the report on the data
set share with them. Colours are classes: ``k`` kept, ``d`` dropped, ``s`` shaded, ``i`` ink; the others are lines and
places of text.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Final, NamedTuple
from urllib.parse import quote

import numpy as np

from interleaved_assets.reporting.figures.distribution import Distribution
from interleaved_assets.reporting.plots.bins import bounds_to_draw, display_edges, kept_bins, shown_reasons, summary
from interleaved_assets.reporting.wording import text

# colours of a shard's plots; the report on the data set has the colours of its theme
_SURFACE, _INK, _MUTED, _KEPT, _DROPPED, _SHADE = "#ffffff", "#1d2433", "#646e82", "#356bd4", "#dd6b3d", "#fdf1eb"
_WIDTH: Final = 728
_PANEL: Final = 360  # two histograms side by side
MARGIN: Final = 12
TOP: Final = 36  # top of a plot, below title and subtitle
_PLOT: Final = 70  # height of the bars
HEADROOM: Final = 13  # space above the highest bar, for the labels of the bounds
_BINS: Final = 36
_PANEL_HEIGHT: Final = TOP + _PLOT + 26
_ROW: Final = 17
_BARS_LEFT: Final = 170
_BARS_WIDTH: Final = 400
_MOST_REASONS: Final = 8
_MOST_TICKS: Final = 4
_LABEL_ROOM: Final = 80
_TITLE_LENGTH: Final = 46
"""Most characters of a title over a histogram; longer ones are squeezed into its width."""
_NAME_LENGTH: Final = 26
# a space in a URL takes three bytes, so numbers are separated by commas
_LITERAL: Final = "/:=;,'*+!$@?~-._"  # Markdown ends a URL at a space, counts its brackets, and decodes entities
_STYLE: Final = (
    f".t{{font-weight:600;font-size:12px;fill:{_INK}}}.i{{fill:{_INK}}}.k{{fill:{_KEPT}}}.d{{fill:{_DROPPED}}}"
    f".s{{fill:{_SHADE}}}.b{{stroke:{_INK}}}.a{{stroke:{_MUTED}}}.e{{text-anchor:end}}.m{{text-anchor:middle}}"
)


class Area(NamedTuple):
    """The rectangle of the bars of a plot, in pixels; y grows downwards."""

    left: int
    right: int
    top: int
    bottom: int


_AREA: Final = Area(MARGIN, _PANEL - MARGIN, TOP, TOP + _PLOT)


def shard_plots(kept: int, dropped: Mapping[str, int], distributions: Sequence[Distribution]) -> str:
    """Draw kept rows, dropped rows by reason, and a histogram of each score with its bounds, as one ``<svg>``.

    The ``<svg>`` is 728 pixels wide. Equal input gives equal text.
    """
    bars, height = reasons(kept, dropped)
    panels = []
    for number, distribution in enumerate(distributions):
        x, y = number % 2 * _PANEL, height + number // 2 * _PANEL_HEIGHT
        panels.append(f"<g transform='translate({x},{y})'>{_histogram(distribution)}</g>")
    height += math.ceil(len(distributions) / 2) * _PANEL_HEIGHT
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='{height}' font-family='sans-serif' "
        f"font-size='10' fill='{_MUTED}'><style>{_STYLE}</style><path fill='{_SURFACE}' d='M0,0h{_WIDTH}v{height}H0'/>"
        f"{bars}{''.join(panels)}</svg>"
    )


def svg_url(svg: str) -> str:
    """Return an SVG as a URL that contains it, for an ``<img>`` or for Markdown."""
    return f"data:image/svg+xml,{quote(svg, safe=_LITERAL)}"


def reasons(kept: int, dropped: Mapping[str, int]) -> tuple[str, int]:
    """Draw bars of kept rows and of dropped rows by reason; return them and their height."""
    bars = [("kept", kept), *shown_reasons(dropped, _MOST_REASONS)]
    total = kept + sum(dropped.values())
    came = f"{total:,} rows in  ·  {text.share(kept, total)} kept" if total else "nothing came in"
    most = max(count for _, count in bars) or 1
    drawn = [title_text("Kept and dropped", came)]
    for number, (name, count) in enumerate(bars):
        y = TOP + number * _ROW
        width = round(count / most * _BARS_WIDTH) or min(count, 1)
        said = f"{count:,} ({text.share(count, total)})" if total else "0"
        drawn.append(
            f"<text class='i e' x='{_BARS_LEFT - 6}' y='{y + 10}'>{_short(name)}</text>"
            f"<path class='{'d' if number else 'k'}' d='M{_BARS_LEFT},{y}h{width}v12h-{width}'/>"
            f"<text class='i' x='{_BARS_LEFT + width + 6}' y='{y + 10}'>{said}</text>"
        )
    return "".join(drawn), TOP + len(bars) * _ROW + 8


def _histogram(distribution: Distribution) -> str:
    measure = distribution.measure
    head = title_text(measure.axis, summary(distribution))
    if not distribution.shown:
        return f"{head}<text x='{MARGIN}' y='{TOP + _PLOT // 2}'>No values to show</text>"
    edges = display_edges(distribution, _BINS)
    is_log = measure.shown.scale == "log"
    place = places(edges, _AREA, log=is_log)
    counts = distribution.histogram(edges)
    axis = f"<path class='a' d='M{_AREA.left},{_AREA.bottom}H{_AREA.right}'/>"
    labels = "".join(
        f"<text x='{place(tick)}'>{tick:,g}</text>"
        for tick in round_values(float(edges[0]), float(edges[-1]), _MOST_TICKS, log=is_log)
    )
    return (
        f"{head}{bars_and_bounds(distribution, edges, counts, _AREA)}{axis}"
        f"<g class='m' transform='translate(0,{_AREA.bottom + 13})'>{labels}</g>"
    )


def bars_and_bounds(distribution: Distribution, edges: np.ndarray, counts: np.ndarray, area: Area) -> str:
    """Draw the bars of a histogram, the sides that the bounds drop, and a line with its label at each bound."""
    measure = distribution.measure
    kept, place = kept_bins(edges, measure), places(edges, area, log=measure.shown.scale == "log")
    drawn = []
    for value, _, side in bounds_to_draw(measure):
        at = place(value)
        left, end = (area.left, at) if side > 0 else (at, area.right)
        drawn.append(f"<path class='s' d='M{left},{area.top}H{end}V{area.bottom}H{left}'/>")
    for shown, colour in ((kept, "k"), (~kept, "d")):
        if path := _steps(edges, np.where(shown, counts, 0), int(counts.max()), place, area):
            drawn.append(f"<path class='{colour}' d='{path}'/>")
    for value, label, side in bounds_to_draw(measure):
        at = place(value)
        # the label is beside the line, on the kept side if there is room
        has_room = area.left + _LABEL_ROOM < at < area.right - _LABEL_ROOM
        after = side > 0 if has_room else at < (area.left + area.right) / 2
        anchor, x = ("i", at + 4) if after else ("i e", at - 4)
        drawn.append(f"<path class='b' d='M{at},{area.top}V{area.bottom}'/>")
        drawn.append(f"<text class='{anchor}' x='{x}' y='{area.top + 9}'>{escape(label)}</text>")
    return "".join(drawn)


def title_text(title: str, subtitle: str) -> str:
    below = escape(" ".join(subtitle.split()))
    width = _PANEL - 2 * MARGIN
    squeezed = f" textLength='{width}' lengthAdjust='spacingAndGlyphs'" if len(title) > _TITLE_LENGTH else ""
    return (
        f"<text class='t' x='{MARGIN}' y='16'{squeezed}>{escape(title)}</text><text x='{MARGIN}' y='29'>{below}</text>"
    )


def places(edges: np.ndarray, area: Area, *, log: bool) -> Callable[[float], int]:
    """Return a function from a value to its place on the horizontal axis, in whole pixels.

    The axis goes from the first to the last of ``edges``.
    """
    low, high = float(edges[0]), float(edges[-1])
    if log:
        low, high = math.log10(low), math.log10(high)

    def place(value: float) -> int:
        along = ((math.log10(value) if log else value) - low) / (high - low)
        return round(area.left + min(max(along, 0.0), 1.0) * (area.right - area.left))

    return place


def _steps(edges: np.ndarray, counts: np.ndarray, most: int, place: Callable[[float], int], area: Area) -> str:
    """Draw the outline of the bins with a count, joining neighbours; each count is at least a pixel high."""
    bottom, highest = area.bottom, area.bottom - area.top - HEADROOM
    path, height = "", 0
    for left, count in zip(edges[:-1].tolist(), counts.tolist(), strict=True):
        rise = max(round(count / most * highest), 1) if count else 0
        if rise != height:
            at = place(left)
            if not height:
                path += f"M{at},{bottom}V{bottom - rise}"
            else:
                path += f"H{at}V{bottom - rise}"
            height = rise
    return path + (f"H{place(float(edges[-1]))}V{bottom}" if height else "")


def round_values(low: float, high: float, most: int, *, log: bool = False) -> list[float]:
    """Return at most ``most`` round values from ``low`` to ``high``."""
    if log and high / low >= 8:
        powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
        ticks = [10.0**power for power in powers]
        if len(ticks) < 3:
            every = [step * 10.0**power for power in range(powers.start - 1, powers.stop + 1) for step in (1, 2, 5)]
            ticks = [tick for tick in every if low <= tick <= high]
        return ticks[:: math.ceil(len(ticks) / most)]
    power = 10 ** math.floor(math.log10((high - low) / most))
    step = next(step * power for step in (1, 2, 2.5, 5, 10, 20) if (high - low) / (step * power) <= most)
    first = math.ceil(low / step)
    return [round(number * step, 12) for number in range(first, math.floor(high / step) + 1)]


def _short(name: str) -> str:
    return escape(name if len(name) <= _NAME_LENGTH else f"{name[: _NAME_LENGTH - 1]}…")
