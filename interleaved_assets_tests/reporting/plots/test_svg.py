"""The plots of a shard as SVG: what is drawn where, that it is well-formed, and how large it is."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from interleaved_assets.reporting.figures.distribution import Distribution
from interleaved_assets.reporting.figures.measures import Measure
from interleaved_assets.reporting.plots.svg import shard_plots, svg_url
from interleaved_assets.scoring.protocol.filter import Display, ImageFilter
from interleaved_assets_tests.reporting.plots.test_figures import SHARPNESS, distribution

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*distributions: Distribution, kept: int = 3, **dropped: int) -> ElementTree.Element:
    return ElementTree.fromstring(shard_plots(kept, dropped, distributions))


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def path(root: ElementTree.Element, kind: str) -> str:
    [found] = [element.get("d", "") for element in root.iter(f"{SVG}path") if element.get("class") == kind]
    return found


def test_rows_kept_and_dropped_are_bars_in_proportion() -> None:
    root = drawn(kept=400, sharpness_below=100, qr_above=1)
    said = texts(root)
    assert said[:2] == ["Kept and dropped", "501 rows in · 79.8 % kept"]
    assert said[2:] == ["kept", "400 (79.8 %)", "sharpness_below", "100 (20.0 %)", "qr_above", "1 (0.2 %)"]
    widths = [int(found[1]) for found in re.finditer(r"M170,\d+h(\d+)v12", shard_plots(400, {"a": 100, "b": 1}, []))]
    assert widths == [400, 100, 1]


def test_rare_reasons_share_a_bar_and_nothing_is_no_error() -> None:
    said = texts(drawn(kept=0, **{f"reason_{number}": 20 - number for number in range(12)}))
    assert "5 other reasons" in said
    assert texts(drawn(kept=0)) == ["Kept and dropped", "nothing came in", "kept", "0"]


def test_a_histogram_has_its_bound_and_both_sides_of_it() -> None:
    root = drawn(distribution("sharpness", SHARPNESS, minimum=100.0))
    assert {"Sharpness (variance of the Laplacian)", "1,000 images · 89.1 % pass", "keep ≥ 100"} <= set(texts(root))
    bound = int(re.fullmatch(r"M(\d+),36V106", path(root, "b"))[1])  # type: ignore[index]
    kept, dropped = path(root.find(f"{SVG}g"), "k"), path(root.find(f"{SVG}g"), "d")  # type: ignore[arg-type]
    assert min(int(at) for at in re.findall(r"[MH](\d+)", kept)) == bound
    assert max(int(at) for at in re.findall(r"[MH](\d+)", dropped)) == bound
    # the highest of all bins is kept, and leaves room for the label
    assert min(int(top) for top in re.findall(r"V(\d+)", kept)) == 49
    assert path(root, "s").startswith("M12,36H")


def test_every_bin_with_a_value_is_at_least_a_pixel_high() -> None:
    root = drawn(distribution("clip", np.append(np.full(10_000, 0.5), -0.5)))
    assert "V105" in path(root.find(f"{SVG}g"), "k")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "values", [[], [0.0], [np.nan], [np.inf, -np.inf, 1.0], [1e-300], [5.0] * 3, [1e5] * 9, [-3.0, 4e9]]
)
@pytest.mark.parametrize("scale", ["linear", "log", "any"])
def test_odd_values_are_drawn_or_said_to_be_missing(values: list[float], scale: str) -> None:
    low, high = (1e-2, 1e5) if scale == "log" else (-1.0, 1.0)
    shown = Display("x <&\"', $", "x", low, high, scale)  # type: ignore[arg-type]
    measure = Measure(ImageFilter("x", ("x",), display=shown), 0.5)
    made = Distribution(measure)
    with np.errstate(all="ignore"):
        made.add(np.array(values))
        said = texts(drawn(made))
    assert "x <&\"', $" in said
    assert ("No values to show" in said) == (not made.count)


def test_the_same_each_time_and_about_a_kilobyte_each() -> None:
    many = [distribution("sharpness", SHARPNESS, minimum=100.0)] * 10
    one, ten = (len(svg_url(shard_plots(400, {"a": 3}, some))) for some in (many[:1], many))
    assert shard_plots(400, {"a": 3}, many) == shard_plots(400, {"a": 3}, many)
    assert one < 2_500
    assert (ten - one) / 9 < 1_200


def test_the_url_has_nothing_that_markdown_or_html_read_as_their_own() -> None:
    url = svg_url(shard_plots(1, {"<a href='x'>) & \"b\"": 2}, []))
    assert re.fullmatch(r"data:image/svg\+xml,[^\s()<>\"&#]+", url)
