"""A backfill from the asset graph to its end, by hand in a real browser: two good shards and one that is cut."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from interleaved_assets_tests.browser import appears, expand_graph, keep, new_page
from interleaved_assets_tests.documents import STAGES, good_shard, project
from interleaved_assets_tests.live import LiveDagster, live_dagster

pytestmark = pytest.mark.system

GOOD, CUT, NOT_CHOSEN = ("mint/pdf-000", "mint/pdf-001"), "mint/pdf-002", "web/flyers-000"
CUT_AT = 20_000
WHY = f"truncated_shard: the tar is cut at byte {CUT_AT}"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDagster]:
    """A webserver on four registered shards, one of them cut, none materialized."""
    folder = tmp_path_factory.mktemp("project")
    project(folder)
    for seed, name in enumerate((*GOOD, CUT, NOT_CHOSEN)):
        good_shard(folder / "raw" / f"{name}.tar", seed=10 * seed)
    cut(folder / "raw" / f"{CUT}.tar")
    with live_dagster(folder / "home", folder / "interleaved.toml", daemon=False) as running:
        running.add_partitions((*GOOD, CUT, NOT_CHOSEN))
        yield running


def cut(tar: Path) -> None:
    """Leave the first bytes of a tar, as an upload does that broke off."""
    tar.write_bytes(tar.read_bytes()[:CUT_AT])


@pytest.fixture(scope="module")
def backfill(browser: Browser, live: LiveDagster) -> str:
    """Launch the backfill by hand and watch it to its end; gives the path of its page.

    The daemon starts only now, so that the page is seen before the backfill has ended.
    """
    with new_page(browser, live.url) as page:
        launch_by_hand(page)
        page.get_by_role("button", name="View", exact=True).or_(page.get_by_role("link", name="View")).first.click()
        page.wait_for_url(re.compile(r"/runs/b/\w+"))
        says(page, r"Status\s+(Requested|In progress)")
        keep(page, "backfill-under-way")
        live.start_daemon()
        appears(live, page.locator("body").filter(has_text=re.compile(r"Status\s*Failed")))
        says(page, r"Status\s+Failed")
        keep(page, "backfill-ended")
        return page.url.removeprefix(live.url)


def says(page: Page, pattern: str) -> None:
    """Wait until the page's text, as people read it, has ``pattern`` in it."""
    expect(page.locator("body")).to_contain_text(re.compile(pattern), use_inner_text=True)


def launch_by_hand(page: Page) -> None:
    """Choose three shards in the dialog of the Lineage page, as README tells, and launch."""
    page.goto("/asset-groups")
    page.get_by_role("button", name="Materialize all (6)").click()
    page.get_by_text("Select a partition").click()
    page.get_by_placeholder("Filter partitions").fill("mint/")
    expect(page.get_by_text("Select all (3)")).to_be_visible()
    keep(page, "backfill-choosing-shards")
    for key in (*GOOD, CUT):
        page.get_by_title(key, exact=True).first.click()
    page.get_by_text("Launch runs to materialize 6 assets").click()  # beside the list, which closes it
    expect(page.get_by_text("3 partitions")).to_be_visible()
    keep(page, "backfill-dialog")
    page.get_by_role("button", name="Launch backfill").click()
    expect(page.get_by_text("Created backfill")).to_be_visible()


def choose_the_chain(page: Page) -> None:
    """Select the assets of the chain in the graph, and open the dialog that launches them."""
    expand_graph(page)
    for name in STAGES:
        page.locator("svg").get_by_text(name, exact=True).click(modifiers=["Shift"])
    page.get_by_role("button", name="Materialize selected (5)").click()
    expect(page.get_by_text("Launch runs to materialize 5 assets")).to_be_visible()


def test_the_backfill_counts_the_good_shards_and_the_bad_one(page: Page, backfill: str) -> None:
    page.goto(backfill)
    for asset in STAGES:
        # targeted, in progress, succeeded, failed
        says(page, rf"{asset}\s+100% completed\s+3\s+0\s+2\s+1\b")


@pytest.mark.usefixtures("backfill")
def test_each_shard_shows_its_state(page: Page) -> None:
    page.goto("/assets/final_tars?view=partitions")
    for state in ("Failed (1)", "Materialized (2)", "Missing (1)"):
        expect(page.get_by_text(state)).to_be_visible()
    page.get_by_title(CUT, exact=True).first.click()
    expect(page.get_by_text("failed, and did not materialize this asset.")).to_be_visible()
    keep(page, "backfill-bad-shard")
    page.get_by_title(GOOD[0], exact=True).first.click()
    expect(page.locator("tr", has_text="dagster/partition_row_count")).to_contain_text("12")
    keep(page, "backfill-good-shard")


@pytest.mark.usefixtures("backfill")
def test_the_failed_check_of_the_bad_shard_shows_the_reason(page: Page) -> None:
    page.goto("/assets/normalized?view=checks&checkDetail=materialization_errors")
    page.get_by_text("Execution history").click()
    page.get_by_role("tab", name="Partitions").last.click()
    for state in ("Failed (1)", "Passed (2)", "Missing (1)"):
        expect(page.get_by_text(state)).to_be_visible()
    page.get_by_title(CUT, exact=True).last.click()  # the first is in the choice of partitions above the list
    expect(page.get_by_text("not materialized: ").first).to_be_visible()
    expect(page.get_by_text(WHY).first).to_be_visible()
    keep(page, "failed-check")
    page.goto("/assets/normalized?view=checks&checkDetail=up_to_date")  # the run failed before it came to this check
    expect(page.get_by_text("Execution failed", exact=True)).to_have_count(2)  # in the description, and as the result
    expect(page.get_by_text("such a run failed and did not reach it: press Execute.")).to_be_visible()


@pytest.mark.usefixtures("backfill")
def test_the_log_of_the_run_names_the_bad_shard_and_why(page: Page) -> None:
    page.goto(f"/assets/normalized?view=partitions&partition={CUT.replace('/', '%2F')}")
    page.get_by_role("button", name="View logs").click()
    page.get_by_placeholder("Filter…").fill("truncated_shard")
    expect(page.get_by_text(WHY).first).to_be_visible()
    keep(page, "backfill-run-log")


@pytest.mark.usefixtures("backfill")
def test_running_again_offers_only_failed_shards(page: Page) -> None:
    choose_the_chain(page)
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Failed", exact=True).click()
    expect(dialog.get_by_text("1 partition", exact=True)).to_be_visible()
    expect(dialog.get_by_title(CUT, exact=True)).to_be_visible()
    keep(page, "backfill-again-failed")


@pytest.mark.usefixtures("backfill")
def test_the_graph_shows_the_progress_of_each_asset(page: Page) -> None:
    expand_graph(page)
    keep(page, "graph-after-backfill")
    page.locator("svg").get_by_text("filtered", exact=True).click()
    says(page, r"Materialized\s+2/4")
