"""A threshold is changed: the UI says which shards are not current, and why, in a real browser."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from interleaved_assets.defs.demo import materialize_all, register_all
from interleaved_assets_tests.browser import appears, expand_graph, keep
from interleaved_assets_tests.defs.runs import check_up_to_date
from interleaved_assets_tests.documents import good_shard, project
from interleaved_assets_tests.live import LiveDagster, live_dagster, opened

pytestmark = pytest.mark.system

KEY = "mint/pdf-000"
PAGE_OF = "/assets/{asset}?view=partitions&partition=mint%2Fpdf-000"
CHANGED = "filtered stale: settings changed: min_sharpness 100.0 → 9000.0"


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveDagster]:
    """Webserver and daemon on a project with one shard that went through every asset."""
    settings = project(tmp_path)
    good_shard(tmp_path / "raw" / f"{KEY}.tar")
    with live_dagster(tmp_path / "home", tmp_path / "interleaved.toml") as live:
        with live.instance() as instance:
            assert materialize_all(instance, settings, register_all(instance, settings.storage))
        yield live


def test_a_changed_threshold_makes_the_selection_stale_and_no_score(
    page: Page, live: LiveDagster, tmp_path: Path
) -> None:
    page.goto(PAGE_OF.format(asset="filtered"))
    expect(page.get_by_text("Materialized", exact=True)).to_be_visible()
    expect(page.get_by_text("Unsynced")).to_have_count(0)

    changed = project(tmp_path, "[selection]\nmin_sharpness = 9000\n")
    with opened(tmp_path / "home") as instance:
        assert check_up_to_date(changed, instance)
    expand_graph(page)
    keep(page, "stale-graph")
    page.goto("/assets/filtered?view=checks&checkDetail=up_to_date")
    expect(page.get_by_text(f"1 of 1 shards are not current: 1 {CHANGED}")).to_be_visible()
    page.goto("/asset-groups")
    page.get_by_role("button", name="Reload definitions").click()
    expect(page.get_by_text("Definitions reloaded!")).to_be_visible()

    for asset in ("filtered", "final_tars"):
        page.goto(PAGE_OF.format(asset=asset))
        page.get_by_text("Unsynced (1)").hover()
        expect(page.get_by_text("1 code version change")).to_be_visible()
        keep(page, f"stale-{asset}")
    for asset in ("normalized", "image_scores"):
        page.goto(PAGE_OF.format(asset=asset))
        expect(page.get_by_text("Materialized", exact=True)).to_be_visible()
        expect(page.get_by_text("Unsynced")).to_have_count(0)

    page.goto("/assets/dataset_report")
    before = page.locator("tr", has_text="shards_stale")
    expect(before).to_contain_text("0")
    page.get_by_role("button", name=re.compile("Materialize$")).click()
    after = page.locator("tr", has_text="shards_stale").get_by_text("1", exact=True)
    appears(live, after)
    expect(page.get_by_text(CHANGED.removeprefix("filtered stale: ")).first).to_be_visible()
    keep(page, "stale-report")
