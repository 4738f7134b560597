"""What people see in the Dagster UI, in a real browser; screenshots are kept in ``artefacts/``."""

from collections.abc import Iterator

import pytest
from dagster import DagsterInstance
from playwright.sync_api import Page, expect, sync_playwright

from interleaved_assets.defs.demo import materialize_all, register_all
from interleaved_assets_tests.documents import good_shard, project
from interleaved_assets_tests.live import ROOT, LiveDagster, live_dagster

pytestmark = pytest.mark.system

CHROMIUM = "/usr/bin/chromium"
# Headless, as root in a container, and without the browser's own calls home.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDagster]:
    """A webserver on a project with two shards that went through every asset."""
    folder = tmp_path_factory.mktemp("project")
    settings = project(folder)
    for name in ("mint/pdf-000", "mint/pdf-001"):
        good_shard(folder / "raw" / f"{name}.tar", seed=len(name))
    with live_dagster(folder / "home", folder / "interleaved.toml", daemon=False) as running:
        with DagsterInstance.from_config(str(folder / "home")) as instance:
            assert materialize_all(instance, settings, register_all(instance, settings))
        yield running


@pytest.fixture
def page(live: LiveDagster) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1600, "height": 1000}, base_url=live.url)
        page.set_default_timeout(PATIENCE_MS)
        yield page
        browser.close()


def keep(page: Page, name: str) -> None:
    folder = ROOT / "artefacts"
    folder.mkdir(exist_ok=True)
    page.screenshot(path=folder / f"{name}.png")


def test_a_shard_shows_its_figures_and_its_dropped_pictures(page: Page) -> None:
    page.goto("/assets/filtered?view=partitions&partition=mint%2Fpdf-000")
    row = page.locator("tr", has_text="dropped_pictures").first
    expect(row).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_text("sharpness_below").first).to_be_visible()
    keep(page, "filtered")
    row.get_by_text("[Show Markdown]").click()
    picture = page.locator("img[alt=dropped_pictures]")
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.naturalWidth") > 100
    keep(page, "dropped-pictures")


def test_a_shard_is_not_called_stale(page: Page) -> None:
    page.goto("/assets/final_tars?view=partitions&partition=mint%2Fpdf-001")
    expect(page.get_by_text("Materialized", exact=True).first).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_text("dagster/partition_row_count").first).to_be_visible()
    assert page.get_by_text("Unsynced").count() == 0
    keep(page, "final-tars")


def test_checks_stand_with_their_metrics(page: Page) -> None:
    page.goto("/assets/filtered?view=checks&checkDetail=rows_accounted_for")
    expect(page.get_by_text("rows_accounted_for").first).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_text("13 rows in = 12 kept + 1 dropped with a reason").first).to_be_visible()
    keep(page, "checks")


def test_the_graph_is_readable_at_a_glance(page: Page) -> None:
    page.goto("/asset-groups")
    for group in ("ingest", "score", "select", "publish"):
        expect(page.get_by_text(group, exact=True).first).to_be_visible(timeout=PATIENCE_MS)
    keep(page, "graph")
