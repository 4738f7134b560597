"""Style of the charts of the report: axes, and conversion to an SVG that follows the theme of the page."""

import io
import re
from html import escape
from typing import Final, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from interleaved_assets.reporting.plots.colours import DROPPED, GRID, INK, KEPT, MUTED, SHADE, SURFACE

_CSS_NAMES: Final = {
    SURFACE: "surface",
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    KEPT: "kept",
    DROPPED: "dropped",
    SHADE: "shade",
}
"""Each colour has one role, so that an SVG can name the role as a CSS variable and follow light and dark themes."""

DPI: Final = 100


class Size(NamedTuple):
    """Size of a figure, in inches of :data:`DPI` pixels."""

    width: float
    height: float


STANDARD: Final = Size(7.0, 3.4)
COMPACT: Final = Size(5.4, 3.1)
"""For two figures side by side: smaller, with text of the same size."""


def new_figure(size: Size = STANDARD) -> tuple[Figure, Axes]:
    """An empty figure with one pair of axes; needs no display and uses no global state."""
    figure = Figure(figsize=size, dpi=DPI, facecolor=SURFACE)
    FigureCanvasAgg(figure)
    left, right, top, bottom = 0.86 / size.width, 0.2 / size.width, 0.69 / size.height, 0.54 / size.height
    # a low figure has axes of its own, which its caller places
    axes = figure.add_axes((left, bottom, 1 - left - right, max(1 - top - bottom, 0.1)))
    axes.set_facecolor("none")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
    axes.spines["bottom"].set_linewidth(0.8)
    axes.tick_params(colors=MUTED, labelsize=9, length=3, width=0.8)
    axes.tick_params(axis="y", length=0)
    axes.set_axisbelow(True)
    return figure, axes


def write_title(figure: Figure, title: str, subtitle: str) -> None:
    """Title and subtitle, left-aligned above the axes."""
    left, top = 0.154 / figure.get_figwidth(), figure.get_figheight()
    figure.text(left, 1 - 0.14 / top, title, color=INK, fontsize=12, fontweight="bold", va="top", parse_math=False)
    figure.text(left, 1 - 0.40 / top, subtitle, color=MUTED, fontsize=9.5, va="top")


def title_axes(axes: Axes, horizontal: str, vertical: str) -> None:
    """Titles of both axes: what is shown, and its unit."""
    axes.set_xlabel(horizontal, color=MUTED, fontsize=9, parse_math=False)
    axes.set_ylabel(vertical, color=MUTED, fontsize=9, parse_math=False)


def to_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as an ``<svg>`` element for an HTML page, coloured by the CSS variables ``--surface``, ``--ink``, ….

    ``name`` makes its ids unique on the page; ``description`` is the text for screen readers.
    """
    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(
            buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")), transparent=True
        )
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\n\s*", "\n", svg)
    for colour, role in _CSS_NAMES.items():
        svg = re.sub(colour, f"var(--{role})", svg, flags=re.IGNORECASE)
    # an element within HTML needs no namespaces; text uses the font of the page
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r"font: ([^;\"]*?)'[^;\"]*", r"font: \1inherit", svg)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{name}-", svg)
    opening = f'<svg role="img" aria-label="{escape(description)}"'
    return re.sub(r'<svg( width="[^"]*"| height="[^"]*")*', opening, svg, count=1).strip()
