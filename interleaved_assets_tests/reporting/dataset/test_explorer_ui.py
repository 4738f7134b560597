"""The threshold explorer in a real browser, against ``interleaved what-if``."""

import re
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from interleaved_assets.cli import main
from interleaved_assets.reporting.dataset.aggregate import aggregate
from interleaved_assets.reporting.dataset.report import html_report
from interleaved_assets.reporting.figures.collect import shard_facts
from interleaved_assets.reporting.figures.measures import measures_of
from interleaved_assets_tests.browser import keep
from interleaved_assets_tests.documents import document, project, write_shard
from interleaved_assets_tests.projects import take_all

pytestmark = pytest.mark.system

TEXT = "[selection]\nmin_sharpness = 60\nmax_aspect_ratio = 2.0\ntext.words = { min = 1 }\n"


def picture(number: int) -> bytes:
    """Noise, more or less blurred, from wide to high."""
    width, height = 40 + 7 * (number % 9), 40 + 5 * (number % 7)
    pixels = np.random.default_rng(number).integers(0, 256, (height, width, 3), np.uint8)
    blurred = cv2.GaussianBlur(pixels, (0, 0), 0.3 + number / 9)
    return cv2.imencode(".png", blurred)[1].tobytes()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The settings of a project with two shards of twelve documents with two to four pictures, and their report."""
    folder = tmp_path_factory.mktemp("project")
    settings = project(folder, TEXT)
    numbers = iter(range(100))
    facts = []
    for name in ("a", "b"):
        documents = {
            f"{name}{n}": document("word " * (3 + n), *(picture(next(numbers)) for _ in range(2 + n % 3)))
            for n in range(12)
        }
        write_shard(folder / "raw" / f"{name}.tar", documents)
        take_all(settings, name)
        facts.append(shard_facts(name, settings))
    data = aggregate(facts, measures_of(settings.selection, settings.documents))
    (folder / "report.html").write_text(html_report(data, selection=settings.selection))
    return folder / "interleaved.toml"


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    messages: list[str] = []
    page = context.new_page()
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto((file.parent / "report.html").as_uri())
    yield page
    context.close()
    assert messages == []


def kept(file: Path, capsys: pytest.CaptureFixture[str], *changes: str) -> tuple[int, int, int]:
    """Images, samples and texts that ``interleaved what-if`` says would be kept."""
    capsys.readouterr()
    assert main(["--settings", str(file), "what-if", *changes]) == 0
    said = capsys.readouterr().out
    rows = {
        match[1]: int(match[2].replace(",", "")) for match in re.finditer(r"(\w+_kept)[^\d]+[\d,]+[^\d]+([\d,]+)", said)
    }
    images, samples = rows["images_kept"], rows["samples_kept"]
    return images, samples, rows["rows_kept"] - images - samples  # a sample has a row of metadata


def slider(page: Page, setting: str) -> Locator:
    return page.locator(".slider", has=page.locator(f"input[aria-label='{setting}']"))


def shown(page: Page, setting: str) -> tuple[str, int, int]:
    """The threshold of a slider, the values that it keeps and their number."""
    said = slider(page, setting).locator("output").inner_text()
    match = re.match(r"[<≤≥] (\S+) keeps [^,]+, drops ([\d,]+) of ([\d,]+)", said)
    assert match, said
    return match[1], int(match[3]) - int(match[2]), int(match[3])


def test_every_card_has_an_axis(page: Page) -> None:
    for setting in ("min_sharpness", "max_aspect_ratio", "min_short_side"):
        card = slider(page, setting)
        shown_at = [float(tick.replace(",", "")) for tick in card.locator(".axis span").all_inner_texts()]
        assert len(shown_at) == 5
        assert shown_at == sorted(shown_at)
        card.locator("input").fill(card.locator("input").get_attribute("min") or "")
        expect(card.locator(".height")).to_have_text(re.compile(r"highest bar: \d+ images, heights by square root"))


@pytest.mark.parametrize(
    ("setting", "name"),
    [("min_sharpness", "sharpness"), ("max_aspect_ratio", "aspect"), ("min_short_side", "short_side")],
)
def test_every_stop_agrees_with_what_if(
    page: Page, file: Path, capsys: pytest.CaptureFixture[str], setting: str, name: str
) -> None:
    moved = slider(page, setting).locator("input")
    # this filter alone: another one that has a bound stays in the order, with a bound that keeps everything
    changes = [f'order=["{name}"]'] if name == "aspect" else [f'order=["aspect", "{name}"]', "max_aspect_ratio=1e9"]
    seen = set()
    for stop in np.linspace(1, int(moved.get_attribute("max") or 0) - 1, 7).round().astype(int):
        moved.fill(str(stop))
        threshold, passing, count = shown(page, setting)
        assert kept(file, capsys, *changes, f"{setting}={threshold}")[0] == passing, threshold
        assert count == 72
        seen.add(passing)
    assert len(seen) > 3


def test_thresholds_in_force_agree_too(page: Page, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    threshold, passing, _ = shown(page, "min_sharpness")
    assert threshold == "60"
    assert slider(page, "min_sharpness").locator("output").inner_text().endswith("in force")
    changes = ['order=["aspect", "sharpness"]', "max_aspect_ratio=1e9"]
    assert kept(file, capsys, *changes)[0] == passing


def test_the_ratio_after_the_filters_before_it(page: Page, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moved = slider(page, "max_ratio").locator("input")
    for stop in (40, 120, 200):
        moved.fill(str(stop))
        threshold, passing, _ = shown(page, "max_ratio")
        assert kept(file, capsys, f"max_ratio={threshold}")[1] == passing


@pytest.mark.parametrize(
    ("setting", "unit", "place"),
    [("document.words.min", "document", 1), ("document.characters.max", "document", 1), ("text.words.min", "text", 2)],
)
def test_sliders_of_documents_and_texts(
    page: Page, file: Path, capsys: pytest.CaptureFixture[str], setting: str, unit: str, place: int
) -> None:
    if unit == "document":  # has no bound
        page.get_by_text("Scores of documents without a bound").first.click()
    alone = ['order=["aspect", "sharpness"]', "max_aspect_ratio=1e9", "min_sharpness=0"]
    moved, seen = slider(page, setting).locator("input"), set()
    for stop in np.linspace(1, int(moved.get_attribute("max") or 0) - 1, 5).round().astype(int):
        moved.fill(str(stop))
        threshold, passing, count = shown(page, setting)
        assert count == 24
        assert kept(file, capsys, *alone, f"{setting}={threshold}")[place] == passing
        together = page.locator("#together").inner_text()
        assert re.search(rf"At most {100 * passing / 24:.1f} % of 24 {unit}s pass all of these", together), together
        seen.add(passing)
    assert len(seen) > 2
    assert f"{setting} = {threshold}" in page.locator("#lines").inner_text()
    assert page.locator("#command").inner_text() == f"interleaved what-if {setting}={threshold}"


def test_lines_to_paste_and_the_command_give_what_was_chosen(
    page: Page, file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    expect(page.locator("#lines")).to_have_text("# nothing was changed")
    slider(page, "min_sharpness").locator("input").fill("150")
    slider(page, "max_aspect_ratio").locator("input").fill("90")
    lines, command = page.locator("#lines").inner_text(), page.locator("#command").inner_text()
    (tmp_path / "raw").mkdir()
    selection = project(tmp_path, lines).selection
    sharpness, ratio = (float(shown(page, name)[0]) for name in ("min_sharpness", "max_aspect_ratio"))
    assert (selection.min_sharpness, selection.max_aspect_ratio) == (sharpness, ratio)
    assert command == f"interleaved what-if max_aspect_ratio={ratio:g} min_sharpness={sharpness:g}"
    together = re.search(r"At most ([\d.]+) % of 72 images", page.locator("#together").inner_text())
    assert together
    assert kept(file, capsys, *command.split()[2:])[0] <= round(float(together[1]) * 72 / 100)
    keep(page, "report-explorer")
    slider(page, "min_sharpness").get_by_role("button", name="Reset").click()
    assert "min_sharpness" not in page.locator("#lines").inner_text()
    page.get_by_role("button", name="Reset all").click()
    expect(page.locator("#lines")).to_have_text("# nothing was changed")


def test_a_minimum_does_not_pass_its_maximum(page: Page) -> None:
    moved = slider(page, "min_aspect_ratio").locator("input")
    moved.fill(moved.get_attribute("max") or "")
    assert float(shown(page, "min_aspect_ratio")[0]) <= 2.0


def test_keys_move_a_slider(page: Page) -> None:
    moved = slider(page, "min_sharpness").locator("input")
    moved.focus()
    before = shown(page, "min_sharpness")[0]
    page.keyboard.press("End")
    assert shown(page, "min_sharpness")[0] != before
    assert (moved.get_attribute("aria-valuetext") or "").startswith("≥ ")
