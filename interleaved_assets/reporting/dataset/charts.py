"""The charts of the report on the data set, drawn by matplotlib. A run over shards does not import this module."""

from markupsafe import Markup
from matplotlib.figure import Figure

from interleaved_assets.reporting.dataset.aggregate import DatasetAggregate
from interleaved_assets.reporting.plots.figures import curve_title, keep_rate_curve, reasons_bar, score_histogram
from interleaved_assets.reporting.plots.style import COMPACT, to_svg
from interleaved_assets.reporting.sketch import ScoreSketch


def reasons_chart(data: DatasetAggregate) -> Markup:
    """Kept rows, and dropped rows by reason, as ``<svg>``."""
    dropped: dict[str, int] = {}
    for reason, number in data.rows.items():
        dropped[reason.name] = dropped.get(reason.name, 0) + number
    return _svg(reasons_bar(data.total("rows_kept"), dropped), "reasons", "Rows kept, and rows dropped by reason")


def score_charts(sketch: ScoreSketch) -> list[Markup]:
    """The histogram, and a keep-rate curve for each bound in force; without bounds, the curve of the minimum."""
    measure = sketch.measure
    bounds = [name for name in ("minimum", "maximum") if getattr(measure, name) is not None]
    histogram = score_histogram(sketch, "Distribution", COMPACT)
    charts = [_svg(histogram, f"{measure.filter}-histogram", f"Histogram of {measure.label}")]
    for bound in bounds or ["minimum"]:
        curve = keep_rate_curve(sketch, bound, curve_title(measure, bound).capitalize(), COMPACT)
        charts.append(_svg(curve, f"{measure.filter}-{bound}", f"Keep rate over the {bound} of {measure.label}"))
    return charts


def _svg(figure: Figure, name: str, description: str) -> Markup:
    # matplotlib escapes the text that it writes
    return Markup(to_svg(figure, name, description))
