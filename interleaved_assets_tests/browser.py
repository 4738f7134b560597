"""A real browser for the tests: Debian's Chromium through Playwright. Screenshots are kept in ``artefacts/``."""

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, expect, sync_playwright

from interleaved_assets_tests.live import ROOT

CHROMIUM = "/usr/bin/chromium"
# Headless, as root in a container, and without the browser's own calls home.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",  # 64 MB of it is all that Docker gives a container
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 60_000
"""How long a click waits for what it is meant for, and an expectation for what it expects."""
RUN_PATIENCE_MS = 15 * PATIENCE_MS
"""How long an expectation waits where the daemon first has runs to launch and to see end."""
WIDTH, HEIGHT = 1600, 1000
TALL = 2600
"""For pages that scroll inside: all of their metadata is then on the screenshot."""

expect.set_options(timeout=PATIENCE_MS)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window, ended with the block."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def new_page(browser: Browser, url: str, height: int = HEIGHT) -> Iterator[Page]:
    """A page that knows nothing of those before it; paths given to ``goto`` are below ``url``."""
    context = browser.new_context(viewport={"width": WIDTH, "height": height}, base_url=url)
    context.set_default_timeout(PATIENCE_MS)
    try:
        yield context.new_page()
    finally:
        context.close()


def keep(page: Page, name: str) -> None:
    """Keep what the page shows, for people to look at."""
    folder = ROOT / "artefacts"
    folder.mkdir(exist_ok=True)
    page.screenshot(path=folder / f"{name}.png", animations="disabled")


def expand_graph(page: Page) -> None:
    """Open the asset graph with every asset to be seen: it starts with its groups closed."""
    page.goto("/asset-groups")
    expect(page.get_by_text("Materialize all")).to_be_visible()
    expect(page.locator("svg").get_by_text("publish", exact=True)).to_be_visible()
    page.mouse.click(WIDTH * 0.75, HEIGHT * 0.75, button="right")
    page.get_by_role("menuitem", name="Expand all groups").click()
    expect(page.locator("svg").get_by_text("final_tars", exact=True)).to_be_visible()
