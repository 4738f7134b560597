"""``interleaved serve`` in a real browser: from the state of the data set to a ledger, the documents and the report."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from interleaved_assets.cli import main
from interleaved_assets.settings import load_settings
from interleaved_assets_tests.browser import keep, new_page
from interleaved_assets_tests.documents import blurred_image, document, project, sharp_image, write_shard
from interleaved_assets_tests.reporting.served.test_server import ROWS, make, running

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on three shards, one of which has failed, since which a threshold was changed."""
    folder = tmp_path_factory.mktemp("project")
    project(folder)
    make(folder / "interleaved.toml")
    project(folder, "[selection]\nmin_sharpness = 90\n")
    with running(load_settings(folder / "interleaved.toml")) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    """A page on which an error of the browser, such as a refused style, fails the test."""
    with new_page(browser, url) as page:
        errors: list[str] = []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
        assert errors == []


def test_stale_and_failed_shards_are_on_the_first_page_with_the_reason(page: Page) -> None:
    page.goto("/")
    states = page.locator("#states")
    expect(states).to_contain_text("bad.tar is not a tar")
    expect(states).to_contain_text("filtered stale: settings changed: min_sharpness 100.0 → 90.0")
    expect(page.locator("#shards tbody tr").first).to_contain_text("bad")
    keep(page, "serve-shards")


def test_a_long_key_breaks_and_pushes_no_column_off_the_page(browser: Browser, tmp_path: Path) -> None:
    key = "crawl-2026/" + "long-name-" * 18
    settings = project(tmp_path)
    write_shard(tmp_path / f"raw/{key}.tar", {"a": document("one two three", sharp_image(0), blurred_image())})
    (tmp_path / "raw/bad.tar").write_bytes(b"no tar")
    assert main(["--settings", str(tmp_path / "interleaved.toml"), "run"]) == 2
    assert main(["--settings", str(tmp_path / "interleaved.toml"), "report"]) == 0
    with running(settings) as port, new_page(browser, f"http://127.0.0.1:{port}") as page:
        page.goto("/")
        fits(page.locator(".scroll", has=page.locator("#shards")))
        keep(page, "serve-long-key")
        page.locator("#shards").get_by_role("link", name="filtered").click()
        fits(page.locator("html"))
        page.goto("/dataset_report.html")
        kept, seen = page.locator("#shards th", has_text="Images kept"), page.locator("#shards .scroll")
        assert right_edge(kept) <= right_edge(seen)
        expect(page.locator("#filters")).to_contain_text("1 document")
        expect(page.locator("#filters")).not_to_contain_text("1 documents")


def fits(element: Locator) -> None:
    """Expect that all of an element is seen without scrolling it to the side."""
    assert element.evaluate("element => element.scrollWidth - element.clientWidth") <= 0


def right_edge(element: Locator) -> float:
    return float(element.evaluate("element => element.getBoundingClientRect().right"))


def test_a_page_that_somebody_else_has_stored_reads_nothing_of_the_others(browser: Browser, tmp_path: Path) -> None:
    settings = project(tmp_path)
    stored = tmp_path / "out/pages/evil.html"
    stored.parent.mkdir(parents=True)
    stored.write_text("""<body><script>
        const read = (what) => { try { return what(); } catch (error) { return error.name; } };
        addEventListener("click", () => {
          const other = open("/");
          setTimeout(() => { document.title = read(() => other.document.body.innerText); }, 500);
        });
    </script>""")
    with running(settings) as port, new_page(browser, f"http://127.0.0.1:{port}") as page:
        page.goto("/pages/evil.html")
        page.mouse.click(300, 300)
        expect(page).to_have_title("TypeError")  # there is no window
        page.get_by_role("link", name="All shards").click()
        expect(page.locator("h1")).to_have_text("Data set")


def test_its_links_lead_to_ledger_documents_and_report(page: Page) -> None:
    page.goto("/")
    page.locator("#shards tr", has_text="many").get_by_role("link", name="filtered").click()
    expect(page.locator("h1")).to_have_text("many: rows that filtered dropped")
    keep(page, "serve-ledger")
    page.get_by_role("link", name="next →").click()
    expect(page.locator("#ledger")).to_contain_text(f"doc-{ROWS - 1}")
    page.get_by_role("link", name="All shards").click()
    page.get_by_role("link", name="web/caf%C3%A9%2C%201").click()
    expect(page.locator("h1")).to_have_text("web/caf%C3%A9%2C%201")
    page.wait_for_load_state()  # the heading comes before the pictures
    assert int(page.locator("figure img").first.evaluate("image => image.naturalWidth")) > 40
    page.go_back()
    page.get_by_role("link", name="Report on the data set").click()
    page.get_by_role("link", name="many").first.click()
    expect(page.locator("h1")).to_have_text("many")


def test_a_shard_is_found_by_a_part_of_its_key(page: Page) -> None:
    page.goto("/")
    page.get_by_label("part of a key").fill("caf%C3")
    page.get_by_label("part of a key").press("Enter")
    expect(page.locator("#shards tbody tr")).to_have_count(1)
    expect(page.locator("#shards")).to_contain_text("web/caf%C3%A9%2C%201")
