"""Takes the pictures of README and docs: ``make screenshots``, or ``python -m docs.screenshots [NAME …]``.

The demo's shards in the real Dagster UI, and in the pages that the project writes, seen with Debian's Chromium (``make
test-all`` installs it). The pictures go to docs/pictures/ as WebP.
"""

import argparse
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from PIL import Image, ImageChops
from playwright.sync_api import Browser, Locator, Page, expect

from benchmarks.dataset import DatasetSize, draw_canvases, write_shard
from interleaved_assets.defs.demo import materialize_all, register_all
from interleaved_assets.defs.requests import BRING_UP_TO_DATE
from interleaved_assets.settings import load_settings
from interleaved_assets_tests.browser import chromium, expand_graph, new_page
from interleaved_assets_tests.live import live_dagster, opened

ROOT = Path(__file__).parents[1]
PICTURES = Path(__file__).parent / "pictures"
DEMO, OTHER = Path("/tmp/demo"), Path("/tmp/other")  # no temporary names: they stand in the pictures
SHARD, OTHER_SHARD = "web/flyers-000", "web/part-000"
WIDTH = 1180
"""Pixels; wider ones are not legible in a page of documentation."""
WEBP_QUALITY = 60
MARGIN = 16
FAINT = 30
"""Differences from the even space up to this are part of it, such as the dots behind the asset graph; of 255."""

Shot = Callable[[Page], Locator | None]
"""Brings a page to what its picture shows; gives the element to crop to, None for the whole window."""


def asset_graph(page: Page) -> Locator:
    """The chain of assets."""
    page.set_viewport_size({"width": 1600, "height": 1000})
    expand_graph(page)
    hide_navigation(page)
    page.get_by_placeholder("Jump to…").locator("xpath=following::button[1]").click()  # closes the list of groups
    return page.locator("svg", has=page.get_by_text("final_tars", exact=True)).last


def shard_page(page: Page) -> None:
    """A shard of ``filtered``: its first dropped rows, its pictures, its figures."""
    page.set_viewport_size({"width": 1400, "height": 940})
    open_shard(page, "filtered", SHARD)
    expect(page.get_by_text("rows_keep_rate")).to_be_attached()
    hide_navigation(page)


def shard_pictures(page: Page) -> Locator:
    """What the entry ``pictures`` of that shard opens: counts, histograms with thresholds, examples."""
    page.set_viewport_size({"width": 1060, "height": 1130})
    open_shard(page, "filtered", SHARD)
    page.locator("tr", has=page.get_by_role("cell", name="pictures", exact=True)).get_by_text("[Show").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("img").first).to_be_visible()
    return dialog


def report(page: Page) -> None:
    """The first screen of the report."""
    page.set_viewport_size({"width": WIDTH, "height": 1020})
    page.goto((DEMO / "data/out/dataset_report.html").as_uri())


def threshold_explorer(page: Page) -> None:
    """The report's explorer after a threshold was moved."""
    page.set_viewport_size({"width": WIDTH, "height": 900})
    page.goto((DEMO / "data/out/dataset_report.html").as_uri())
    page.get_by_label("min_sharpness_256", exact=True).fill("170")
    page.get_by_role("link", name="Try thresholds").click()


def viewer(page: Page) -> None:
    """The documents of a shard that lost rows to the QR filter."""
    page.goto((DEMO / f"data/out/pages/{SHARD}.html").as_uri())
    page.get_by_role("button", name="qr_above").click()
    page.locator("article:visible .row.dropped").first.scroll_into_view_if_needed()


def refused_model(page: Page) -> Locator:
    """The message of the step that refuses the demo's CLIP model on other data."""
    with opened(OTHER / "home") as instance:
        (run,) = [run for run in instance.get_runs() if run.job_name == BRING_UP_TO_DATE]
    page.goto(f"/runs/{run.run_id}")
    page.get_by_text("View full message").last.click()
    message = page.get_by_role("dialog").get_by_text("is the demo's model")  # without the stack below it
    message.evaluate("(element, margin) => element.style.padding = `${margin}px`", MARGIN)
    return message


SHOTS: dict[Path, dict[str, Shot]] = {
    DEMO: {
        "asset-graph": asset_graph,
        "shard-page": shard_page,
        "shard-pictures": shard_pictures,
        "report": report,
        "threshold-explorer": threshold_explorer,
        "viewer": viewer,
    },
    OTHER: {"refused-model": refused_model},
}
"""What is photographed in each project."""


def open_shard(page: Page, asset: str, key: str) -> None:
    page.goto(f"/assets/{asset}?view=partitions&partition={key.replace('/', '%2F')}")


def hide_navigation(page: Page) -> None:
    page.get_by_text("Hide navigation").click()
    expect(page.get_by_text("Hide navigation")).to_be_hidden()


def prepare(folder: Path) -> None:
    """A project in ``folder`` with the repository's settings, CLIP model and Dagster instance."""
    (folder / "home").mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "interleaved.toml", folder)
    shutil.copytree(ROOT / "data/models", folder / "data/models", dirs_exist_ok=True)
    shutil.copy(ROOT / "dagster.yaml", folder / "home")


def make_demo() -> None:
    """The demo's shards, through every asset; those that are current are not made again."""
    prepare(DEMO)
    environment = {**os.environ, "DAGSTER_HOME": str(DEMO / "home"), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", "interleaved_assets.cli", "demo"], cwd=DEMO, env=environment, check=True)


def make_other() -> None:
    """A shard that is not the demo's, which the demo's model must not judge: the run fails."""
    shutil.rmtree(OTHER, ignore_errors=True)
    prepare(OTHER)
    size = DatasetSize()
    write_shard(OTHER / f"data/raw/{OTHER_SHARD}.tar", 0, draw_canvases(size.seed), size, "jpeg", samples=6)
    settings = load_settings(OTHER / "interleaved.toml")
    with opened(OTHER / "home") as instance:
        assert not materialize_all(instance, settings, register_all(instance, settings.storage))


def take(browser: Browser, url: str, name: str, shot: Shot) -> None:
    """Write one picture to docs/pictures/."""
    with new_page(browser, url) as page:
        page.set_viewport_size({"width": WIDTH, "height": 800})
        element = shot(page)
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(1000)  # until what slides or fades in has come to rest
        png = (element or page).screenshot(animations="disabled")
    with Image.open(io.BytesIO(png)) as picture:
        taken = without_margins(picture.convert("RGB")) if element else picture.convert("RGB")
    width = min(taken.width, WIDTH)
    small = taken.resize((width, round(taken.height * width / taken.width)), Image.Resampling.LANCZOS)
    path = PICTURES / f"{name}.webp"
    small.save(path, quality=WEBP_QUALITY, method=6)
    print(f"{path.relative_to(ROOT)}: {width} × {small.height}, {path.stat().st_size / 1000:.0f} kB")


def without_margins(picture: Image.Image) -> Image.Image:
    """The picture without most of the even space around its content; its corner has the colour of that space."""
    even = Image.new("RGB", picture.size, picture.getpixel((picture.width - 1, picture.height - 1)))
    content = ImageChops.difference(picture, even).convert("L").point(lambda level: 255 * (level > FAINT))
    left, top, right, bottom = content.getbbox()
    margins = max(0, left - MARGIN), max(0, top - MARGIN)
    return picture.crop((*margins, min(picture.width, right + MARGIN), min(picture.height, bottom + MARGIN)))


def main(names: Iterable[str]) -> None:
    """Take the pictures with these names; all where there are none."""
    chosen = {
        folder: {name: shot for name, shot in shots.items() if not names or name in names}
        for folder, shots in SHOTS.items()
    }
    PICTURES.mkdir(exist_ok=True)
    with chromium() as browser:
        for folder, make in ((DEMO, make_demo), (OTHER, make_other)):
            if chosen[folder]:
                make()
                with live_dagster(folder / "home", folder / "interleaved.toml", daemon=False) as live:
                    for name, shot in chosen[folder].items():
                        take(browser, live.url, name, shot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Take the pictures of README and docs.")
    parser.add_argument("names", nargs="*", help="such as viewer; default: all")
    main(parser.parse_args().names)
