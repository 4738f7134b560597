"""A real browser for the tests: Debian's Chromium through Playwright. Screenshots are kept in ``artefacts/``."""

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, BrowserContext, Error, Locator, Page, expect, sync_playwright

from interleaved_assets.defs.demo import PAGES
from interleaved_assets_tests.live import ROOT, LiveDagster

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
_LOOK_MS = 500
_SHOWN_OF_PAGE = 3000
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


def new_context(browser: Browser, url: str, height: int = HEIGHT) -> BrowserContext:
    context = browser.new_context(viewport={"width": WIDTH, "height": height}, base_url=url)
    context.set_default_timeout(PATIENCE_MS)
    return context


@contextmanager
def next_page(context: BrowserContext, url: str) -> Iterator[Page]:
    """Another page of the same context, in which pages load twice as fast: the scripts of the UI are compiled already.

    All that pages before it have stored is deleted: it knows nothing of them either.
    """
    page = context.new_page()
    kinds = "cookies,local_storage,indexeddb,cache_storage,service_workers"
    context.new_cdp_session(page).send("Storage.clearDataForOrigin", {"origin": url, "storageTypes": kinds})
    try:
        yield page
    finally:
        page.close()


@contextmanager
def new_page(browser: Browser, url: str, height: int = HEIGHT) -> Iterator[Page]:
    """A page that knows nothing of those before it; paths given to ``goto`` are below ``url``.

    An error in the block says what the page shows instead of what was looked for.
    """
    context = new_context(browser, url, height)
    page = context.new_page()
    try:
        yield page
    except (AssertionError, Error) as error:
        error.add_note(what_it_shows(page))
        raise
    finally:
        context.close()


def what_it_shows(page: Page) -> str:
    """The address and the text of a page, for people to read."""
    try:
        text = page.locator("body").inner_text(timeout=1000)
    except Error as error:
        text = f"(it has no text: {error.message})"
    return f"The page {page.url} showed:\n{text[:_SHOWN_OF_PAGE]}"


def appears(live: LiveDagster, locator: Locator) -> None:
    """Wait until the daemon has done what makes the page show this.

    Fails as :meth:`LiveDagster.wait_for` does, and when for a minute nothing is under way that could bring it.
    """
    page = locator.page

    def is_there() -> bool:
        idle = live.is_idle()
        try:
            expect(locator).to_be_visible(timeout=PATIENCE_MS if idle else _LOOK_MS)
        except AssertionError:
            if idle and live.is_idle():
                raise AssertionError(
                    f"waited for {locator}, which the page does not show although all has ended: {live.activity()}. "
                    f"{what_it_shows(page)}"
                ) from None
            return False
        return True

    live.wait_for(is_there, str(locator))


def keep(page: Page, name: str) -> None:
    """Keep what the page shows, for people to look at."""
    folder = ROOT / "artefacts"
    folder.mkdir(exist_ok=True)
    page.screenshot(path=folder / f"{name}.png", animations="disabled")


def expand_graph(page: Page) -> None:
    """Open the asset graph with every asset to be seen, by the link that the demo prints."""
    page.goto(PAGES["the graph of all assets"])
    expect(page.get_by_text("Materialize all")).to_be_visible()
    expect(page.locator("svg").get_by_text("final_tars", exact=True)).to_be_visible()
