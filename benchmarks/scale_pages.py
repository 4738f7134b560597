"""Seconds until a page of the Dagster UI shows its content, in Debian's Chromium."""

import re
import time
from collections.abc import Callable
from urllib.parse import quote

from playwright.sync_api import Page, expect, sync_playwright

from benchmarks.scale_world import Figure, World

CHROMIUM = "/usr/bin/chromium"
# Headless, as root in a container, and without the background requests of the browser.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 120_000


def pages(world: World) -> list[Figure]:
    """Pages of shards that passed all stages, each in a new browser: first visit, second visit."""
    keys = world.finished()
    one = keys[len(keys) // 2]
    count = f"{len(keys):,}".replace(",", ",?")
    figures = []
    with world.dagster() as services, sync_playwright() as playwright:

        def graph(page: Page) -> None:
            page.goto("/asset-groups")
            expect(page.get_by_role("img", name="dot_filled").nth(3)).to_be_visible()  # a status in each of four groups

        def group(page: Page) -> None:
            page.goto("/locations/__repository__@interleaved_assets/asset-groups/score")
            expect(page.get_by_text(re.compile(f"^{count} partitions$")).first).to_be_visible()

        def partitions(page: Page) -> None:
            page.goto("/assets/filtered?view=partitions")
            expect(page.get_by_text(re.compile(rf"^Materialized \({count}\)$"))).to_be_visible()
            expect(page.get_by_text(keys[0]).first).to_be_visible()

        def one_shard(page: Page) -> None:
            page.goto(f"/assets/filtered?view=partitions&partition={quote(one, safe='')}")
            expect(page.get_by_text("dagster/partition_row_count").first).to_be_visible()

        def launch_dialog(page: Page) -> None:
            page.goto("/asset-groups")
            page.get_by_role("button", name="Materialize all").first.click()
            page.get_by_text("All", exact=True).click()
            expect(page.get_by_text(re.compile(f"^{count} partitions$"))).to_be_visible()

        for what, visit in (
            ("graph of all assets", graph),
            ("graph of a group, with its figures", group),
            ("partitions of an asset", partitions),
            ("one shard's page", one_shard),
            ("launch dialog, all shards of all assets", launch_dialog),
        ):
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
            try:
                page = browser.new_page(viewport={"width": 1600, "height": 1000}, base_url=services.url)
                page.set_default_timeout(PATIENCE_MS)
                expect.set_options(timeout=PATIENCE_MS)
                first, second = _seconds(visit, page), _seconds(visit, page)
                page.screenshot(path=world.work / f"{visit.__name__}.png")
            finally:
                browser.close()
            figures += [Figure(f"{what}, first visit", first, "s"), Figure(f"{what}, again", second, "s")]
    return figures


def _seconds(visit: Callable[[Page], None], page: Page) -> float:
    started = time.perf_counter()
    visit(page)
    return time.perf_counter() - started
