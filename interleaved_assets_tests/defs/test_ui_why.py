"""Why a row was dropped, a shard failed or is not current: in the Dagster UI and on the pages, in a real browser."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from interleaved_assets.defs.demo import materialize_all, register_all
from interleaved_assets.reporting.figures.drops import short_id
from interleaved_assets_tests.browser import TALL, WIDTH, expand_graph, keep, new_page
from interleaved_assets_tests.defs.runs import check_up_to_date
from interleaved_assets_tests.defs.test_ui import metadata_row
from interleaved_assets_tests.documents import blurred_image, document, good_shard, project, sharp_image, write_shard
from interleaved_assets_tests.layouts import foreign_tar
from interleaved_assets_tests.live import LiveDagster, live_dagster, opened

pytestmark = pytest.mark.system

PREFIX = "9f86d081884c7d659a2feaa0c55ad01"  # of ids with 32 digits
LONG_TEXT = "Words of a document that has far too few of them for its pictures, and is dropped as a whole. "
NOT_A_TAR = "is not a tar: its first 512 bytes are not a tar header"
AT_ONCE = "[watch]\nquiet_seconds = 0\n"  # the night leaves shards out that were written in the last minute
STALE = "filtered stale: settings changed: min_sharpness 100.0 → 9000.0"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDagster]:
    """A webserver on five shards: one good, one with long ids, one that is no tar, one in another layout, and one that
    failed after it was good.

    Since their runs a threshold was changed, and the check of all shards has run.
    """
    folder = tmp_path_factory.mktemp("project")
    settings = project(folder, f"{AT_ONCE}[selection]\nmax_ratio = 1\n")
    good_shard(folder / "raw/good.tar")
    good_shard(folder / "raw/again.tar", seed=1)
    write_shard(
        folder / "raw/long.tar",
        {
            f"{PREFIX}1": document("one two three", sharp_image(5), blurred_image(), url="https://example.org/1"),
            f"{PREFIX}2": document(LONG_TEXT * 3, sharp_image(6), *[sharp_image(seed) for seed in range(60)]),
        },
    )
    (folder / "raw/bad.tar").write_bytes(b"no tar" * 200)
    (folder / "raw/foreign.tar").write_bytes(foreign_tar("img2dataset"))
    with live_dagster(folder / "home", folder / "interleaved.toml", daemon=False) as running:
        with opened(folder / "home") as instance:
            assert not materialize_all(instance, settings, register_all(instance, settings.storage))
            (folder / "raw/again.tar").write_bytes(b"no tar" * 200)
            register_all(instance, settings.storage)
            assert not materialize_all(instance, settings, ["again"])
            changed = project(folder, f"{AT_ONCE}[selection]\nmax_ratio = 1\nmin_sharpness = 9000\n")
            assert check_up_to_date(changed, instance)
        yield running


def outputs(live: LiveDagster) -> Path:
    return live.home.parent / "out"


def test_dropped_rows_stand_on_the_page_of_the_shard(page: Page) -> None:
    page.set_viewport_size({"width": WIDTH, "height": TALL})
    page.goto("/assets/filtered?view=partitions&partition=long")
    rows = metadata_row(page, "dropped_rows")
    expect(rows).to_contain_text("sharpness 0 < 100")
    expect(rows).to_contain_text(f"… ({len(LONG_TEXT * 3)} characters)")
    expect(rows).to_contain_text(short_id(f"{PREFIX}2"))
    column = rows.get_by_text("content or detail").bounding_box()
    assert column is not None
    assert column["x"] + column["width"] <= WIDTH  # long ids do not push it off the page
    expect(metadata_row(page, "all_dropped_rows")).to_contain_text("interleaved drops --shard long")
    expect(metadata_row(page, "page")).to_contain_text("pages/long.html")
    keep(page, "why-dropped-rows")
    metadata_row(page, "pictures").get_by_text("[Show Markdown]").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text(f"Ids begin with {PREFIX}")).to_be_visible()
    picture = dialog.locator("img").first
    expect(picture).to_be_visible()
    assert int(picture.evaluate("image => image.naturalWidth")) > 40
    keep(page, "why-pictures")


def test_a_failed_shard_has_its_error_first_on_its_page(page: Page, live: LiveDagster) -> None:
    page.goto("/assets/final_tars?view=partitions&partition=again")
    error, failed_at = (page.locator("tbody tr").nth(number) for number in range(2))  # before all else
    expect(error).to_contain_text(f"again.tar {NOT_A_TAR}")
    expect(failed_at).to_contain_text("normalized")
    keep(page, "why-failed-again")
    # of a shard that was never materialized, Dagster shows observations behind this button only
    page.goto("/assets/final_tars?view=partitions&partition=bad")
    page.get_by_text("View all historical events").click()
    page.get_by_role("dialog").get_by_text("bad", exact=True).last.click()
    expect(page.get_by_role("dialog").get_by_text(f"bad.tar {NOT_A_TAR}").first).to_be_visible()
    keep(page, "why-failed")


def test_a_shard_in_another_layout_says_what_was_found_and_is_not_published(page: Page, live: LiveDagster) -> None:
    page.goto("/assets/final_tars?view=partitions&partition=foreign")
    page.get_by_text("View all historical events").click()
    page.get_by_role("dialog").get_by_text("foreign", exact=True).last.click()
    error = page.get_by_role("dialog").get_by_text("20 of 20 samples yield no text and no image").first
    expect(error).to_be_visible()
    expect(error).to_contain_text("Members that no document names: 20 .jpg, 20 .txt")
    expect(error).to_contain_text("docs/formats.md")
    keep(page, "why-other-layout")
    assert not (outputs(live) / "tars/foreign.tar").exists()
    page.goto("/assets/normalized?view=checks&checkDetail=materialization_errors")
    expect(page.get_by_text("The shard has the layout that").first).to_be_visible()
    keep(page, "why-other-layout-check")


def test_the_mark_of_a_stage_says_that_shards_are_stale(page: Page, live: LiveDagster) -> None:
    page.goto("/assets/filtered?view=checks&checkDetail=up_to_date")
    expect(page.get_by_text(f"5 of 5 shards are not current: 3 normalized failed; 2 {STALE}")).to_be_visible()
    table = metadata_row(page, "not_current")
    expect(table).to_contain_text(STALE)
    expect(table).to_contain_text(f"normalized failed, for example: {live.home.parent}/raw/again.tar {NOT_A_TAR}")
    keep(page, "why-stale-check")
    expand_graph(page)
    keep(page, "why-stale-graph")


def test_the_preview_of_the_night_says_what_and_why(page: Page) -> None:
    page.goto("/asset-groups")
    page.get_by_role("button", name="Reload definitions").click()
    expect(page.get_by_text("Definitions reloaded!")).to_be_visible()
    page.goto("/locations/interleaved_assets/schedules/nightly")
    page.get_by_role("button", name="Preview tick result").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("UTC").first.click()
    page.get_by_role("menuitem").first.click()
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog.get_by_text("run requests")).to_be_visible()
    dialog.locator("tbody button, td button").first.click()
    expect(page.get_by_text(re.compile(f"interleaved/reasons: .*{STALE}")).first).to_be_visible()
    expect(
        page.get_by_text("interleaved/stages: normalized, image_scores, document_scores, filtered, final_tars")
    ).to_be_visible()
    keep(page, "why-tonight")


def test_the_report_shows_errors_pictures_and_settings(browser: Browser, live: LiveDagster) -> None:
    with new_page(browser, live.url) as page:
        page.goto((outputs(live) / "dataset_report.html").as_uri())
        expect(page.get_by_text(f"bad.tar {NOT_A_TAR}").first).to_be_visible()
        expect(page.get_by_text(re.compile(r"Made 20\d\d-.* UTC with interleaved-assets .*dagster 1"))).to_be_visible()
        pictures = page.locator("figure img")
        assert int(pictures.first.evaluate("image => image.naturalWidth")) > 40
        keep(page, "why-report")
        page.get_by_text("sharpness_below").last.scroll_into_view_if_needed()
        keep(page, "why-report-reasons")
        page.locator("#scores").get_by_role("heading", name="Sharpness", exact=True).scroll_into_view_if_needed()
        keep(page, "why-report-plots")


def test_the_report_leads_to_the_documents_of_a_shard(browser: Browser, live: LiveDagster) -> None:
    with new_page(browser, live.url) as page:
        page.goto((outputs(live) / "dataset_report.html").as_uri())
        page.get_by_role("link", name="long").first.click()
        expect(page.locator("h1")).to_have_text("long")
        expect(page.get_by_text("sharpness_below · measured 0, keep ≥ 100")).to_be_visible()
        expect(page.locator("article.gone h2")).to_have_text(f"{PREFIX}2")
        keep(page, "why-shard-page")
