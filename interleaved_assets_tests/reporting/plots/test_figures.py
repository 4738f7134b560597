"""Plots: what is drawn where, how large the files are, and that nothing breaks on little or odd data."""

import re
from dataclasses import replace
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.colors import to_hex

from interleaved_assets.reporting.measures import Measure, measure_of
from interleaved_assets.reporting.plots.colours import DROPPED, KEPT
from interleaved_assets.reporting.plots.figures import keep_rate_curve, reasons_bar, score_histogram
from interleaved_assets.reporting.plots.style import COMPACT, to_svg
from interleaved_assets.reporting.sketch import ScoreSketch
from interleaved_assets.selection.settings import SelectionSettings

SHARPNESS = np.concatenate(
    [np.random.default_rng(1).lognormal(6.5, 0.8, 900), np.random.default_rng(2).lognormal(2.5, 0.6, 100)]
)


def sketch(name: str, values: np.ndarray, **bounds: float | None) -> ScoreSketch:
    shown = replace(measure_of(name, SelectionSettings()), **{"minimum": None, "maximum": None, **bounds})
    made = ScoreSketch(shown)
    made.add(values)
    return made


def texts(figure) -> str:
    drawn = [text.get_text() for text in figure.texts]
    for axes in figure.axes:
        drawn += [text.get_text() for text in axes.texts] + [label.get_text() for label in axes.get_yticklabels()]
    return "\n".join(drawn)


class Bar(NamedTuple):
    left: float
    right: float
    height: float
    colour: str


def bars_of(axes) -> list[Bar]:
    """The bars of a histogram, by their corners."""
    found = []
    for collection in axes.collections:
        for path in collection.get_paths():
            (left, bottom), (right, height) = path.vertices.min(axis=0), path.vertices.max(axis=0)
            assert bottom == 0
            found.append(Bar(left, right, height, to_hex(collection.get_facecolor()[0])))
    return found


def test_a_histogram_counts_every_value_and_splits_at_the_threshold() -> None:
    figure = score_histogram(sketch("sharpness", np.append(SHARPNESS, np.nan), minimum=100.0))
    [axes] = figure.axes
    bars = bars_of(axes)
    assert sum(bar.height for bar in bars) == 1000
    below = [bar for bar in bars if bar.colour == DROPPED]
    above = [bar for bar in bars if bar.colour == KEPT]
    assert sum(bar.height for bar in below) == (SHARPNESS < 100).sum()
    assert max(bar.right for bar in below) <= 100 + 1e-9 <= min(bar.left for bar in above) + 1e-6
    assert [line.get_xdata()[0] for line in axes.lines] == [100]
    assert "keep ≥ 100" in texts(figure)
    assert "1,000 images" in texts(figure)
    assert f"{(SHARPNESS >= 100).mean():.1%}".replace("%", " %") + " pass" in texts(figure)
    assert "1 without a score" in texts(figure)


def test_zeros_that_would_dwarf_the_rest_are_said_and_not_drawn() -> None:
    figure = score_histogram(sketch("qr", np.array([0.0] * 400 + [0.02, 0.1, 0.3]), maximum=0.05))
    assert sum(bar.height for bar in bars_of(figure.axes[0])) == 3
    assert "400 without a QR code" in texts(figure)
    assert figure.axes[0].get_xlim()[0] == 0


def test_the_curve_marks_the_bound_in_force() -> None:
    figure = keep_rate_curve(sketch("sharpness", SHARPNESS, minimum=100.0), "minimum")
    curve, line, marker = figure.axes[0].lines
    assert (np.diff(curve.get_ydata()) <= 0).all()
    assert line.get_xdata()[0] == 100
    assert (marker.get_xdata()[0], marker.get_ydata()[0]) == (100, pytest.approx(100 * (SHARPNESS >= 100).mean()))
    assert "what another minimum would keep" in texts(figure)
    assert "what a minimum would keep" in texts(keep_rate_curve(sketch("sharpness", SHARPNESS), "minimum"))


@pytest.mark.parametrize(("name", "values"), [("sharpness", SHARPNESS), ("qr", np.linspace(0, 0.4, 200))])
def test_plots_side_by_side_have_the_same_axis_and_titles_with_units(name: str, values: np.ndarray) -> None:
    made = sketch(name, values, minimum=0.1)
    histogram, curve = score_histogram(made).axes[0], keep_rate_curve(made, "minimum").axes[0]
    assert histogram.get_xlim() == curve.get_xlim()
    axis = {"sharpness": "Sharpness (variance of the Laplacian)", "qr": "QR code area (share of the image)"}[name]
    assert (histogram.get_xlabel(), histogram.get_ylabel()) == (axis, "images")
    uncapitalized = axis if name == "qr" else axis.lower().replace("laplacian", "Laplacian")
    assert (curve.get_xlabel(), curve.get_ylabel()) == (f"minimum of {uncapitalized}", "images kept")


def test_reasons_are_ordered_and_rare_ones_summed_up() -> None:
    dropped = {f"filter_{number}_below": number + 1 for number in range(12)}
    figure = reasons_bar(100, dropped)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["kept", *(f"filter_{number}_below" for number in range(11, 4, -1)), "5 other reasons"]
    widths = [bar.get_width() for bar in figure.axes[0].containers[0]]
    assert widths == [100, 12, 11, 10, 9, 8, 7, 6, 1 + 2 + 3 + 4 + 5]
    assert "178 rows in  ·  56.2 % kept" in texts(figure)


@pytest.mark.parametrize(
    "figure",
    [
        score_histogram(sketch("sharpness", SHARPNESS, minimum=100.0)),
        score_histogram(sketch("aspect", np.array([0.3, 1.0, 1.5, 4.0]), minimum=0.5, maximum=3.0)),
        keep_rate_curve(sketch("clip", np.random.default_rng(3).normal(0.2, 0.1, 1000), minimum=0.15), "minimum"),
        reasons_bar(10, {f"reason_{number}": 3 for number in range(20)}),
    ],
    ids=["histogram", "two bounds", "curve", "bar"],
)
def test_a_chart_is_the_same_each_time(figure) -> None:
    assert to_svg(figure, "x", "x") == to_svg(figure, "x", "x")
    assert figure.get_figwidth() == 7
    assert 1.5 <= figure.get_figheight() <= 3.4


@pytest.mark.parametrize(
    "values",
    [
        np.array([]),
        np.array([np.nan]),
        np.array([0.0]),
        np.array([0.2]),
        np.full(30, 100.0),
        np.array([0.0, 1e12]),
        np.array([0.5, np.inf]),
        np.array([-5.0, 5.0]),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["sharpness", "qr", "ratio", "own"])
@pytest.mark.parametrize("bounds", [{}, {"minimum": 0.0}, {"minimum": 0.1, "maximum": 50.0}], ids=str)
def test_odd_values_are_drawn_or_said_to_be_none(values: np.ndarray, name: str, bounds: dict[str, float]) -> None:
    made = sketch(name, values, **bounds)
    figure = score_histogram(made)
    figure.draw_without_rendering()
    if made.count == 0:
        assert "No values to show" in texts(figure)
    keep_rate_curve(made, "maximum" if "maximum" in bounds else "minimum").draw_without_rendering()


def test_reports_without_kept_rows_and_without_shards() -> None:
    assert "0.0 % kept" in texts(reasons_bar(0, {"sharpness_below": 5}))
    assert "nothing came in" in texts(reasons_bar(0, {}))
    assert "100.0 % kept" in texts(reasons_bar(5, {}))


def test_an_svg_follows_the_theme_and_has_no_references() -> None:
    made = sketch("sharpness", SHARPNESS, minimum=100.0)
    svg = to_svg(score_histogram(made, "Distribution", COMPACT), "sharp", 'Histogram of "sharpness"')
    assert svg == to_svg(score_histogram(made, "Distribution", COMPACT), "sharp", 'Histogram of "sharpness"')
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == 'Histogram of "sharpness"'
    assert root.get("viewBox") == "0 0 388.8 223.2"
    assert root.get("width") is None
    assert "http" not in svg
    assert {"var(--ink)", "var(--kept)", "var(--dropped)", "var(--shade)"} <= set(re.findall(r"var\(--\w+\)", svg))
    assert not re.findall(r"#[0-9a-f]{6}\b", svg)
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    assert all(name.startswith("sharp-") for name in ids)
    for reference in re.findall(r'(?:href="|url\()#([^")]+)', svg):
        assert reference in ids
    assert "Distribution" in svg


def test_names_are_never_read_as_mathematics() -> None:
    odd = Measure("a$b_$c^{", "a$b_$c^{", "x", minimum=1)
    made = ScoreSketch(odd)
    made.add(np.array([0.5, 2.0]))
    to_svg(score_histogram(made), "x", "x")
    to_svg(reasons_bar(1, {"a$b_$c^{_below": 3}), "x", "x")
