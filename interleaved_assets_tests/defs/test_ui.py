"""What people see of the data set and its shards in the Dagster UI, in a real browser."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from interleaved_assets.defs.demo import materialize_all, register_all
from interleaved_assets_tests.browser import HEIGHT, TALL, WIDTH, expand_graph, keep
from interleaved_assets_tests.documents import good_shard, project
from interleaved_assets_tests.live import LiveDagster, live_dagster, opened

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDagster]:
    """A webserver on a project with two shards that went through every asset."""
    folder = tmp_path_factory.mktemp("project")
    settings = project(folder)
    for seed, name in enumerate(("mint/pdf-000", "mint/pdf-001")):
        good_shard(folder / "raw" / f"{name}.tar", seed=10 * seed)
    with live_dagster(folder / "home", folder / "interleaved.toml", daemon=False) as running:
        with opened(folder / "home") as instance:
            assert materialize_all(instance, settings, register_all(instance, settings.storage))
        yield running


def metadata_row(page: Page, name: str) -> Locator:
    """The row of a shard's metadata with exactly this name."""
    return page.locator("tr", has=page.get_by_role("cell", name=name, exact=True))


def picture_widths(page: Page, name: str) -> list[int]:
    """Open the metadata ``name``, Markdown with pictures; gives the pixels of those that were really decoded."""
    metadata_row(page, name).get_by_text("[Show Markdown]").click()
    pictures = page.get_by_role("dialog").locator("img")
    expect(pictures.first).to_be_visible()
    return [int(picture.evaluate("image => image.naturalWidth")) for picture in pictures.all()]


def test_a_shard_shows_its_figures_and_its_dropped_pictures(page: Page) -> None:
    page.set_viewport_size({"width": WIDTH, "height": TALL})
    page.goto("/assets/filtered?view=partitions&partition=mint%2Fpdf-000")
    expect(metadata_row(page, "rows_in")).to_contain_text("13")
    expect(metadata_row(page, "rows_dropped")).to_contain_text("1")
    expect(metadata_row(page, "dropped/sharpness_below")).to_contain_text("1")
    expect(metadata_row(page, "source")).to_contain_text("/raw/mint/pdf-000.tar")
    keep(page, "shard-filtered")
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    plots, *pictures = picture_widths(page, "pictures")
    assert plots == 728
    assert pictures
    assert min(pictures) > 40
    keep(page, "shard-pictures")


def test_the_job_leads_to_the_page_that_counts_shards(page: Page) -> None:
    page.goto("/locations/interleaved_assets/jobs/bring_up_to_date")
    expect(page.get_by_text("To load shards by hand, use Materialize all on the Lineage page")).to_be_visible()
    page.goto("/asset-groups")
    page.get_by_role("button", name="Materialize all (6)").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("Launch runs to materialize 6 assets")).to_be_visible()
    dialog.get_by_text("All", exact=True).click()
    expect(dialog.get_by_text("2 partitions").first).to_be_visible()
    keep(page, "load-everything")


def test_a_shard_is_not_called_stale(page: Page) -> None:
    page.goto("/assets/final_tars?view=partitions&partition=mint%2Fpdf-001")
    expect(page.get_by_text("Materialized", exact=True)).to_be_visible()
    expect(metadata_row(page, "dagster/partition_row_count")).to_contain_text("12")
    expect(page.get_by_text("Unsynced")).to_have_count(0)
    keep(page, "shard-final-tars")


def test_checks_stand_with_their_metrics_and_every_shard(page: Page) -> None:
    page.goto("/assets/filtered?view=checks&checkDetail=materialization_errors")
    expect(page.get_by_text("passed: 13 rows in = 12 kept + 1 dropped with a reason")).to_be_visible()
    keep(page, "check-overview")
    page.get_by_text("Execution history").click()
    for key in ("mint/pdf-000", "mint/pdf-001"):
        expect(page.locator("tr", has_text=key).first).to_contain_text("Passed")
    keep(page, "check-history")
    page.get_by_role("tab", name="Partitions").last.click()
    expect(page.get_by_text("Passed (2)")).to_be_visible()
    expect(page.get_by_text("Missing (0)")).to_be_visible()
    keep(page, "check-partitions")


def test_the_graph_is_readable_at_a_glance(page: Page) -> None:
    expand_graph(page)
    for name in ("ingest", "score", "select", "publish"):
        expect(page.locator("svg").get_by_text(name, exact=True)).to_be_visible()
    for name in (
        "raw_shards",
        "normalized",
        "image_scores",
        "document_scores",
        "filtered",
        "final_tars",
        "dataset_report",
    ):
        expect(page.locator("svg").get_by_text(name, exact=True)).to_be_visible()
    keep(page, "graph")


def test_the_lineage_of_an_asset_leads_from_raw_shard_to_report(page: Page) -> None:
    page.goto("/assets/filtered?view=lineage")
    page.get_by_role("button", name="All", exact=True).click()
    for name in (
        "raw_shards",
        "normalized",
        "image_scores",
        "document_scores",
        "filtered",
        "final_tars",
        "dataset_report",
    ):
        expect(page.locator("svg").get_by_text(name, exact=True)).to_be_visible()
    keep(page, "lineage")


def test_numbers_are_plotted_over_all_shards(page: Page) -> None:
    page.set_viewport_size({"width": WIDTH, "height": TALL})
    page.goto("/assets/filtered?view=overview")
    page.get_by_role("button", name="Plots").click()
    for name in ("rows_dropped", "images", "rows_keep_rate"):
        expect(page.get_by_text(name, exact=True)).to_be_visible()
    expect(page.locator("canvas").first).to_be_visible()
    keep(page, "plots")


def test_the_report_shows_the_state_of_the_data_set(page: Page) -> None:
    page.goto("/assets/dataset_report?view=overview")
    expect(metadata_row(page, "shards_complete")).to_contain_text("2")
    expect(metadata_row(page, "dropped/filtered/sharpness_below")).to_be_visible()
    expect(metadata_row(page, "report").get_by_role("row", name="images 10 8 80.0 %")).to_be_visible()
    keep(page, "dataset-report")


def test_sensors_and_schedules_show_their_descriptions(page: Page) -> None:
    page.goto("/automation")
    for name, purpose in (  # in the order of the page: a description lies over the line above its own
        ("delete_old_runs", "Deletes runs older than"),
        ("nightly", "missing, failed or stale"),
        ("raw_shard_sensor", "requests a run for new and changed shards"),
    ):
        page.get_by_role("link", name=re.compile(rf"\b{name} info\b")).get_by_role("img", name="info").hover()
        expect(page.get_by_text(purpose).first).to_be_visible()
    keep(page, "automation")
