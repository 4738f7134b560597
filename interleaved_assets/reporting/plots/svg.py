"""The plots of one shard as one small SVG, written as text: about 1 KB a plot, and no plotting library in a run."""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Final
from urllib.parse import quote

import numpy as np

from interleaved_assets.reporting import text
from interleaved_assets.reporting.plots.bins import bounds_to_draw, display_edges, kept_bins, shown_reasons, summary
from interleaved_assets.reporting.plots.colours import DROPPED, INK, KEPT, MUTED, SHADE, SURFACE
from interleaved_assets.reporting.sketch import ScoreSketch

_WIDTH: Final = 728
_PANEL: Final = 360  # two histograms side by side
_MARGIN: Final = 12
_TOP: Final = 36  # of a plot, below title and subtitle
_PLOT: Final = 70  # height of the bars
_HEADROOM: Final = 13  # above the highest bar, for the labels of the bounds
_BINS: Final = 36
_PANEL_HEIGHT: Final = _TOP + _PLOT + 26
_ROW: Final = 17
_BARS_LEFT: Final = 170
_BARS_WIDTH: Final = 400
_MOST_REASONS: Final = 8
_MOST_TICKS: Final = 4
_LABEL_ROOM: Final = 80
_NAME_LENGTH: Final = 26
# a space in a URL takes three bytes, so that numbers are separated by commas
_LITERAL: Final = "/:=;,'*+!$@?~-._"  # Markdown ends a URL at a space, counts its brackets, and decodes entities
_STYLE: Final = (
    f".t{{font-weight:600;font-size:12px;fill:{INK}}}.i{{fill:{INK}}}.k{{fill:{KEPT}}}.d{{fill:{DROPPED}}}"
    f".s{{fill:{SHADE}}}.b{{stroke:{INK}}}.a{{stroke:{MUTED}}}.e{{text-anchor:end}}.m{{text-anchor:middle}}"
)


def shard_plots(kept: int, dropped: Mapping[str, int], sketches: Sequence[ScoreSketch]) -> str:
    """Kept rows and dropped rows by reason, and a histogram of each score with its bounds, as an ``<svg>`` of 728
    pixels in width. Equal input gives equal text.
    """
    bars, height = _reasons(kept, dropped)
    panels = []
    for number, sketch in enumerate(sketches):
        x, y = number % 2 * _PANEL, height + number // 2 * _PANEL_HEIGHT
        panels.append(f"<g transform='translate({x},{y})'>{_histogram(sketch)}</g>")
    height += math.ceil(len(sketches) / 2) * _PANEL_HEIGHT
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='{height}' font-family='sans-serif' "
        f"font-size='10' fill='{MUTED}'><style>{_STYLE}</style><path fill='{SURFACE}' d='M0,0h{_WIDTH}v{height}H0'/>"
        f"{bars}{''.join(panels)}</svg>"
    )


def svg_url(svg: str) -> str:
    """An SVG as a URL that contains it, for an ``<img>`` or for Markdown."""
    return f"data:image/svg+xml,{quote(svg, safe=_LITERAL)}"


def _reasons(kept: int, dropped: Mapping[str, int]) -> tuple[str, int]:
    """Bars of kept rows and of dropped rows by reason; and their height."""
    bars = [("kept", kept), *shown_reasons(dropped, _MOST_REASONS)]
    total = kept + sum(dropped.values())
    came = f"{total:,} rows in  ·  {text.share(kept, total)} kept" if total else "nothing came in"
    most = max(count for _, count in bars) or 1
    drawn = [_title("Kept and dropped", came)]
    for number, (name, count) in enumerate(bars):
        y = _TOP + number * _ROW
        width = round(count / most * _BARS_WIDTH) or min(count, 1)
        said = f"{count:,} ({text.share(count, total)})" if total else "0"
        drawn.append(
            f"<text class='i e' x='{_BARS_LEFT - 6}' y='{y + 10}'>{_short(name)}</text>"
            f"<path class='{'d' if number else 'k'}' d='M{_BARS_LEFT},{y}h{width}v12h-{width}'/>"
            f"<text class='i' x='{_BARS_LEFT + width + 6}' y='{y + 10}'>{said}</text>"
        )
    return "".join(drawn), _TOP + len(bars) * _ROW + 8


def _histogram(sketch: ScoreSketch) -> str:
    measure = sketch.measure
    head = _title(measure.axis, summary(sketch))
    if not sketch.count - (sketch.zeros if measure.zero_means else 0):
        return f"{head}<text x='{_MARGIN}' y='{_TOP + _PLOT // 2}'>No values to show</text>"
    edges = display_edges(sketch, _BINS)
    counts = sketch.histogram(edges, without_zeros=measure.zero_means is not None)
    kept = kept_bins(edges, measure)
    place = _places(edges, log=measure.scale == "log")
    bottom, right = _TOP + _PLOT, _PANEL - _MARGIN
    drawn = [head]
    for value, _, side in bounds_to_draw(measure):
        at = place(value)
        left, end = (_MARGIN, at) if side > 0 else (at, right)
        drawn.append(f"<path class='s' d='M{left},{_TOP}H{end}V{bottom}H{left}'/>")
    for shown, colour in ((kept, "k"), (~kept, "d")):
        if path := _steps(edges, np.where(shown, counts, 0), int(counts.max()), place):
            drawn.append(f"<path class='{colour}' d='{path}'/>")
    for value, label, side in bounds_to_draw(measure):
        at = place(value)
        # beside the line, on the kept side where there is room
        after = side > 0 if _MARGIN + _LABEL_ROOM < at < right - _LABEL_ROOM else at < _PANEL / 2
        anchor, x = ("i", at + 4) if after else ("i e", at - 4)
        drawn.append(f"<path class='b' d='M{at},{_TOP}V{bottom}'/>")
        drawn.append(f"<text class='{anchor}' x='{x}' y='{_TOP + 9}'>{escape(label)}</text>")
    drawn.append(f"<path class='a' d='M{_MARGIN},{bottom}H{right}'/>")
    ticks = _ticks(float(edges[0]), float(edges[-1]), log=measure.scale == "log")
    labels = "".join(f"<text x='{place(tick)}'>{tick:,g}</text>" for tick in ticks)
    return f"{''.join(drawn)}<g class='m' transform='translate(0,{bottom + 13})'>{labels}</g>"


def _title(title: str, subtitle: str) -> str:
    below = escape(" ".join(subtitle.split()))
    return f"<text class='t' x='{_MARGIN}' y='16'>{escape(title)}</text><text x='{_MARGIN}' y='29'>{below}</text>"


def _places(edges: np.ndarray, *, log: bool) -> Callable[[float], int]:
    """Returns the place of a value on the horizontal axis of a histogram, in whole pixels."""
    low, high = float(edges[0]), float(edges[-1])
    if log:
        low, high = math.log10(low), math.log10(high)

    def place(value: float) -> int:
        along = ((math.log10(value) if log else value) - low) / (high - low)
        return round(_MARGIN + min(max(along, 0.0), 1.0) * (_PANEL - 2 * _MARGIN))

    return place


def _steps(edges: np.ndarray, counts: np.ndarray, most: int, place: Callable[[float], int]) -> str:
    """The outline of the bins with a count, neighbours in one: each count at least a pixel high."""
    bottom = _TOP + _PLOT
    path, height = "", 0
    for left, count in zip(edges[:-1].tolist(), counts.tolist(), strict=True):
        rise = max(round(count / most * (_PLOT - _HEADROOM)), 1) if count else 0
        if rise != height:
            at = place(left)
            if not height:
                path += f"M{at},{bottom}V{bottom - rise}"
            else:
                path += f"H{at}V{bottom - rise}"
            height = rise
    return path + (f"H{place(float(edges[-1]))}V{bottom}" if height else "")


def _ticks(low: float, high: float, *, log: bool) -> list[float]:
    """At most :data:`_MOST_TICKS` round values from ``low`` to ``high``."""
    if log and high / low >= 8:
        powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
        ticks = [10.0**power for power in powers]
        if len(ticks) < 3:
            every = [step * 10.0**power for power in range(powers.start - 1, powers.stop + 1) for step in (1, 2, 5)]
            ticks = [tick for tick in every if low <= tick <= high]
        return ticks[:: math.ceil(len(ticks) / _MOST_TICKS)]
    power = 10 ** math.floor(math.log10((high - low) / _MOST_TICKS))
    step = next(step * power for step in (1, 2, 2.5, 5, 10, 20) if (high - low) / (step * power) <= _MOST_TICKS)
    first = math.ceil(low / step)
    return [round(number * step, 12) for number in range(first, math.floor(high / step) + 1)]


def _short(name: str) -> str:
    return escape(name if len(name) <= _NAME_LENGTH else f"{name[: _NAME_LENGTH - 1]}…")
