"""The charts of the report: what is drawn where, and that nothing breaks on little or odd data."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import interleaved_assets.reporting
from interleaved_assets.reporting.figures.distribution import Distribution
from interleaved_assets.reporting.figures.measures import Measure, measure_of
from interleaved_assets.reporting.plots.bins import display_edges
from interleaved_assets.reporting.plots.figures import keep_rate_curve, reasons_bar, score_histogram
from interleaved_assets.scoring.protocol.filter import Display, ImageFilter
from interleaved_assets.selection.settings import SelectionSettings

SHARPNESS = np.concatenate(
    [np.random.default_rng(1).lognormal(6.5, 0.8, 900), np.random.default_rng(2).lognormal(2.5, 0.6, 100)]
)


def distribution(name: str, values: np.ndarray, **bounds: float | None) -> Distribution:
    shown = replace(measure_of(name, SelectionSettings()), **{"minimum": None, "maximum": None, **bounds})
    made = Distribution(shown)
    made.add(values)
    return made


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("text")]


def path(svg: str, kind: str) -> str:
    [found] = [element for element in ElementTree.fromstring(svg).iter("path") if element.get("class") == kind]
    return found.get("d", "")


def at_labels(svg: str, place: str) -> dict[str, float]:
    """The texts of the labels on an axis, each with its ``place``: ``x`` below the plot, ``y`` to its left."""
    kind = {"x": "m", "y": "e"}[place]
    found = [element for element in ElementTree.fromstring(svg).iter("text") if element.get("class") == kind]
    return {element.text or "": float(element.get(place, "")) for element in found if element.get(place)}


def test_a_histogram_counts_every_value_and_splits_at_the_threshold() -> None:
    made = distribution("sharpness", np.append(SHARPNESS, np.nan), minimum=100.0)
    edges = display_edges(made)
    counts = made.histogram(edges)
    assert counts.sum() == 1000
    assert counts[edges[:-1] < 100 - 1e-6].sum() == (SHARPNESS < 100).sum()
    svg = score_histogram(made)
    bound = int(re.fullmatch(r"M(\d+),40V180", path(svg, "b"))[1])  # type: ignore[index]
    assert at_labels(svg, "x")["100"] == bound
    kept, dropped = ([int(at) for at in re.findall(r"[MH](\d+)", path(svg, kind))] for kind in "kd")
    assert max(dropped) == bound == min(kept)
    # the highest bar is as high as the labels of its axis say
    top = min(float(at) for at in re.findall(r"V([\d.]+)", path(svg, "k")))
    lines = {int(label): y - 3 for label, y in at_labels(svg, "y").items()}
    assert (180 - top) / (180 - lines[20]) == pytest.approx(counts.max() / 20, rel=0.02)
    share = f"{(SHARPNESS >= 100).mean():.1%}".replace("%", " %")
    assert f"1,000 images · {share} pass · 1 without a score" in texts(svg)
    assert "keep ≥ 100" in texts(svg)


def test_zeros_that_would_dwarf_the_rest_are_said_and_not_drawn() -> None:
    made = distribution("qr", np.array([0.0] * 400 + [0.02, 0.1, 0.3]), maximum=0.05)
    assert made.histogram(display_edges(made)).sum() == 3
    svg = score_histogram(made)
    assert "403 images · 99.5 % pass · 400 without a QR code" in texts(svg)
    assert at_labels(svg, "x")["0"] == 56  # where the axis begins


def test_the_curve_marks_the_bound_in_force() -> None:
    svg = keep_rate_curve(distribution("sharpness", SHARPNESS, minimum=100.0), "minimum")
    points = [tuple(map(float, point.split(","))) for point in path(svg, "c").removeprefix("M").split("L")]
    assert (np.diff([y for _, y in points]) >= 0).all()
    line = int(re.fullmatch(r"M(\d+),40V180", path(svg, "n"))[1])  # type: ignore[index]
    [marker] = ElementTree.fromstring(svg).iter("circle")
    assert float(marker.get("cx", "")) == line == at_labels(svg, "x")["100"]
    lines = {float(label.removesuffix(" %")): y - 3 for label, y in at_labels(svg, "y").items()}
    rate = np.interp(float(marker.get("cy", "")), sorted(lines.values()), sorted(lines, reverse=True))
    assert rate == pytest.approx(100 * (SHARPNESS >= 100).mean(), abs=0.1)
    assert texts(svg)[0] == "What another minimum would keep"
    assert texts(keep_rate_curve(distribution("clip", SHARPNESS), "minimum"))[0] == "What a minimum would keep"


@pytest.mark.parametrize(("name", "values"), [("sharpness", SHARPNESS), ("qr", np.linspace(0, 0.4, 200))])
def test_plots_side_by_side_have_the_same_axis_and_titles_with_units(name: str, values: np.ndarray) -> None:
    made = distribution(name, values, minimum=0.1)
    histogram, curve = score_histogram(made), keep_rate_curve(made, "minimum")
    axis = {"sharpness": "Sharpness (variance of the Laplacian)", "qr": "QR code area (share of the image)"}[name]
    uncapitalized = axis if name == "qr" else axis.lower().replace("laplacian", "Laplacian")
    ticks, same = at_labels(histogram, "x"), at_labels(curve, "x")
    assert ticks.pop(axis) == same.pop(f"minimum of {uncapitalized}")
    assert ticks == same
    assert len(ticks) >= 3
    assert "images" in texts(histogram)
    assert "images kept" in texts(curve)


def test_reasons_are_ordered_and_rare_ones_summed_up() -> None:
    dropped = {f"filter_{number}_below": number + 1 for number in range(12)}
    svg = reasons_bar(100, dropped)
    said = texts(svg)
    assert said[:2] == ["Kept and dropped", "178 rows in · 56.2 % kept"]
    assert said[2::2] == ["kept", *(f"filter_{number}_below" for number in range(11, 4, -1)), "5 other reasons"]
    widths = [int(width) for width in re.findall(r"M170,\d+h(\d+)v12", svg)]
    assert widths == [4 * count for count in (100, 12, 11, 10, 9, 8, 7, 6, 1 + 2 + 3 + 4 + 5)]


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
    made = distribution(name, values, **bounds)
    charts = [score_histogram(made), keep_rate_curve(made, "maximum" if "maximum" in bounds else "minimum")]
    for svg in charts:
        assert ("No values to show" in texts(svg)) == ("class='a'" not in svg)
        assert "nan" not in svg
        assert "inf" not in svg.replace("in force", "")
    if made.count == 0:
        assert all("No values to show" in texts(svg) for svg in charts)


def test_reports_without_kept_rows_and_without_shards() -> None:
    assert "5 rows in · 0.0 % kept" in texts(reasons_bar(0, {"sharpness_below": 5}))
    assert "nothing came in" in texts(reasons_bar(0, {}))
    assert "5 rows in · 100.0 % kept" in texts(reasons_bar(5, {}))


def test_a_chart_is_the_same_each_time_and_follows_the_theme() -> None:
    style = Path(interleaved_assets.reporting.__file__).with_name("templates") / "dataset_report.css"
    styled = set(re.findall(r"^\.chart \.(\w) ", style.read_text(), flags=re.MULTILINE))
    made = distribution("aspect", np.array([0.3, 1.0, 1.5, 4.0]), minimum=0.5, maximum=3.0)
    for draw in (
        lambda: score_histogram(made),
        lambda: keep_rate_curve(made, "minimum"),
        lambda: keep_rate_curve(distribution("clip", np.full(9, 0.5), minimum=0.15), "minimum"),
        lambda: reasons_bar(10, {f"reason_{number}": 3 for number in range(20)}),
    ):
        svg = draw()
        assert svg == draw()
        root = ElementTree.fromstring(svg)
        assert root.get("width") is None
        assert root.get("viewBox", "").startswith("0 0 ")
        assert {kind for element in root.iter() for kind in element.get("class", "").split()} <= styled
        assert not any(element.get("style") or element.get("id") for element in root.iter())
        assert "#" not in svg
        assert "http" not in svg
    assert "Distribution" in texts(score_histogram(made))


def test_names_are_never_read_as_markup() -> None:
    odd = Measure(ImageFilter("a$b", ("x",), display=Display("a\"$b_<i>&'", "x")), 1)
    made = Distribution(odd)
    made.add(np.array([0.5, 2.0]))
    svg = score_histogram(made)
    assert ElementTree.fromstring(svg).get("aria-label") == "Histogram of a\"$b_<i>&'"
    assert "a\"$b_<i>&'" in texts(svg)
    assert "a$b_<i>_below" in texts(reasons_bar(1, {"a$b_<i>_below": 3}))


@pytest.mark.parametrize("with_code", [2, 5, 12, 35])
def test_the_labels_of_a_part_of_the_axis_stay_inside_the_plot(with_code: int) -> None:
    areas = np.concatenate([np.zeros(100 - with_code), np.linspace(0.02, 0.3, with_code)])
    labels = at_labels(keep_rate_curve(distribution("qr", areas, maximum=0.05), "maximum"), "y")
    assert "0 %" not in labels  # part of the axis
    assert 40 <= labels["100 %"] - 3 == min(labels.values()) - 3 < 50
