"""The charts of the report on the data set."""

from markupsafe import Markup

from interleaved_assets.reporting.dataset.aggregate import DatasetAggregate
from interleaved_assets.reporting.plots.figures import curve_title, keep_rate_curve, reasons_bar, score_histogram
from interleaved_assets.reporting.sketch import ScoreSketch


def reasons_chart(data: DatasetAggregate) -> Markup:
    """Kept rows, and dropped rows by reason, as ``<svg>``."""
    dropped: dict[str, int] = {}
    for reason, number in data.rows.items():
        dropped[reason.name] = dropped.get(reason.name, 0) + number
    return Markup(reasons_bar(data.total("rows_kept"), dropped))


def score_charts(sketch: ScoreSketch) -> list[Markup]:
    """The histogram, and a keep-rate curve for each bound in force; without bounds, the curve of the minimum."""
    measure = sketch.measure
    bounds = [name for name in ("minimum", "maximum") if getattr(measure, name) is not None]
    curves = [
        keep_rate_curve(sketch, bound, curve_title(measure, bound).capitalize()) for bound in bounds or ["minimum"]
    ]
    return [Markup(chart) for chart in (score_histogram(sketch, "Distribution"), *curves)]  # their texts are escaped
