"""The page of documents in a real browser: it reads well, nothing of the data acts, and every control works."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from interleaved_assets.reporting.documents.choice import Choice
from interleaved_assets.reporting.documents.document import Drop, Score, ShownDocument, ShownRow
from interleaved_assets.reporting.documents.files import file_documents
from interleaved_assets.reporting.documents.html import documents_html
from interleaved_assets.reporting.documents.pages import DocumentPage
from interleaved_assets_tests.browser import keep
from interleaved_assets_tests.documents import document, project, sharp_image, write_shard

pytestmark = pytest.mark.system

OWN = "document.title = 'owned'"
HOSTILE_ID = f'x"\'><img src=q onerror="{OWN}">'
HOSTILE = (
    f"</script><script>{OWN}</script>",
    f'<img src="http://127.0.0.1:9/pixel" onerror="{OWN}"> <svg onload="{OWN}"></svg>',
    '"><link rel=stylesheet href="http://127.0.0.1:9/style"><style>@import "http://127.0.0.1:9/x"; p {top: 0}</style>',
    f"<a href=\"javascript:{OWN}\">a</a> <iframe srcdoc='<script>top.{OWN}</script>'></iframe> {{{{ 7 * 7 }}}}",
    "control \x1b[31m \x07 and reversed \u202etxt.exe",
)
CODE = "```html\n<b>if</b> a &lt; b:\n\n\tindented = '</script>'\n```"
ARABIC, HEBREW = "هذا نص يُقرأ من اليمين إلى اليسار.", "שלום, עולם 123"


class Opened(NamedTuple):
    page: Page
    requests: list[str]
    messages: list[str]


@contextmanager
def opened(browser: Browser, folder: Path, shown: DocumentPage, **options: object) -> Iterator[Opened]:
    file = folder / "page.html"
    file.write_text(documents_html(shown))
    context = browser.new_context(**options)  # type: ignore[arg-type]
    context.set_default_timeout(60_000)
    requests: list[str] = []
    messages: list[str] = []
    try:
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("dialog", lambda dialog: (messages.append(dialog.message), dialog.dismiss()))
        page.goto(file.as_uri())
        yield Opened(page, [url for url in requests if not url.startswith("data:")], messages)
    finally:
        context.close()


def test_nothing_of_the_data_acts_and_all_of_it_is_there(browser: Browser, tmp_path: Path) -> None:
    body = document(*HOSTILE, CODE, ARABIC, HEBREW, sharp_image(1), **{"</pre><script>x": f"<script>{OWN}</script>"})
    tar = write_shard(tmp_path / "hostile.tar", {HOSTILE_ID: body})
    shown = file_documents(str(tar), Choice(), project(tmp_path))
    with opened(browser, tmp_path, shown) as (page, requests, messages):
        page.get_by_text("1 field").click()
        page.wait_for_timeout(300)
        assert page.title() == str(tar)
        assert page.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)") == []
        assert [url for url in requests if not url.startswith("file:")] == []
        assert messages == []
        assert page.locator("article script, article iframe, article link, article style, article a").count() == 0
        reads(page.locator("article h2"), HOSTILE_ID)
        texts = page.locator("article .row.text")
        for number, text in enumerate(HOSTILE[:4]):
            reads(texts.nth(number), text)
        reads(texts.nth(4), r"control \x1b[31m \x07 and reversed \u202etxt.exe")
        assert page.locator("article .row pre").text_content() == CODE
        assert f"<script>{OWN}</script>" in (page.locator("details pre").text_content() or "")
        for text, direction in ((ARABIC, "rtl"), (HEBREW, "rtl"), (HOSTILE[0], "ltr")):
            shown_as = page.get_by_text(text, exact=True).first
            assert shown_as.evaluate("element => getComputedStyle(element).direction") == direction
        assert int(page.locator("figure img").evaluate("image => image.naturalWidth")) == 64
        keep(page, "documents-hostile")


def reads(locator: Locator, text: str) -> None:
    """Expect that a reader who scrolls to this element sees exactly ``text`` there.

    Articles have ``content-visibility: auto``: Chromium gives the text of one as empty until it has painted it. It
    paints those near the window, with the next frame.
    """
    locator.scroll_into_view_if_needed()
    expect(locator).to_have_text(text, use_inner_text=True)  # waits, but takes all white space for the same
    assert locator.inner_text() == text


def score(name: str, value: float) -> Score:
    return Score(name, name, value, value > 0.5, f"{name}: keep ≥ 0.5", str(value))


QR = Drop("filtered", "qr_above", 0.2, "keep < 0.05", "", 0.05)
BLUR = Drop("filtered", "sharpness_below", 41.25, "keep ≥ 100", "", 100.0)
GONE = Drop("filtered", "ratio_above", 2.0, "keep ≤ 0.5", "", 0.5)


def made(name: str, text: str, clip: float | None, *drops: Drop) -> ShownDocument:
    pictures = [ShownRow(9 + n, "image", name=f"{name}.{n}.png", drop=drop) for n, drop in enumerate(drops)]
    scores = () if clip is None else (score("clip", clip),)
    return ShownDocument(
        name, (ShownRow(0, "text", text), ShownRow(1, "image", name=f"{name}.png", scores=scores), *pictures), {}
    )


DOCUMENTS: Sequence[ShownDocument] = (
    made("doc-a", "A walk in the Garden", 0.9),
    made("doc-b", "the river", 0.1, QR, BLUR),
    made("doc-c", "garden and river", 0.5, QR),
    made("doc-d", "nothing here", None, BLUR),
    ShownDocument("doc-e", (ShownRow(0, "text", "all of it went", drop=GONE),), {"url": "x"}, (), GONE),
)
REASONS = {"qr_above": 2, "sharpness_below": 2, "ratio_above": 2}


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    shown = DocumentPage("web/shard", DOCUMENTS, "5 documents", None, REASONS)
    with opened(browser, tmp_path, shown) as (page, _, messages):
        yield page
        assert messages == []


def visible(page: Page) -> list[str]:
    # not the inner text, which is empty while an article outside of the window is not painted: see `reads`
    return [text.strip()[-1] for text in page.locator("article:visible h2").all_text_contents()]


def test_drops_are_struck_through_with_stage_reason_value_and_threshold(page: Page) -> None:
    row = page.locator("#d1 .row.dropped").first
    reads(row.locator(".why"), "dropped by filtered: qr_above · measured 0.2, keep < 0.05")
    reads(page.locator("#d4 > .why"), "dropped by filtered: ratio_above · measured 2, keep ≤ 0.5")
    gone = page.locator("#d4 del")
    assert "line-through" in gone.evaluate("element => getComputedStyle(element).textDecoration")
    kept, dropped = (
        page.locator(place).first.evaluate("row => getComputedStyle(row).backgroundColor")
        for place in (".row.kept", ".row.dropped")
    )
    assert kept != dropped
    keep(page, "documents-drops")


def test_filter_by_reason(page: Page) -> None:
    page.get_by_role("button", name="qr_above 2").click()
    assert visible(page) == ["b", "c"]
    page.get_by_role("button", name="sharpness_below 2").click()
    assert visible(page) == ["b", "c", "d"]
    page.get_by_role("button", name="qr_above 2").click()
    page.get_by_role("button", name="sharpness_below 2").click()
    page.get_by_role("button", name="nothing dropped 1").click()
    assert visible(page) == ["a"]
    expect(page.locator("#place")).to_have_text("1 / 1")


def test_search_in_texts_and_ids(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("GARDEN")
    expect(page.locator("#place")).to_have_text("1 / 2")
    assert visible(page) == ["a", "c"]
    assert page.evaluate("[...CSS.highlights.get('found')].map(range => range.toString())") == ["Garden", "garden"]
    page.locator("#search").fill("doc-d")
    expect(page.locator("#place")).to_have_text("1 / 1")
    assert visible(page) == ["d"]
    page.locator("#search").fill("<b>")
    expect(page.get_by_text("No document matches.")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#place")).to_have_text(re.compile("/ 5"))


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("clip, lowest first", ["b", "c", "a", "d", "e"]),
        ("clip, highest first", ["a", "c", "b", "d", "e"]),
        ("most dropped rows first", ["b", "e", "c", "d", "a"]),
        ("as in the shard", ["a", "b", "c", "d", "e"]),
    ],
)
def test_sort(page: Page, order: str, expected: list[str]) -> None:
    page.locator("#sort").select_option("clip, lowest first")
    page.locator("#sort").select_option(order)
    assert visible(page) == expected
    assert [text[-1] for text in page.locator(".index bdi").all_inner_texts()] == expected


def test_steps_by_key_and_by_button(page: Page) -> None:
    current = page.locator("article.current h2")
    for key, expected in (
        ("j", "doc-b"),
        ("ArrowRight", "doc-c"),
        ("k", "doc-b"),
        ("ArrowLeft", "doc-a"),
        ("k", "doc-a"),
    ):
        page.keyboard.press(key)
        expect(current).to_have_text(expected)
    for _ in range(9):
        page.keyboard.press("j")
    expect(current).to_have_text("doc-e")
    expect(page.locator("#place")).to_have_text("5 / 5")
    page.get_by_role("button", name="Previous").click()
    expect(current).to_have_text("doc-d")
    page.locator("#search").fill("river")
    expect(page.locator("#place")).to_have_text("1 / 2")
    page.locator("#search").blur()
    page.keyboard.press("j")
    expect(current).to_have_text("doc-c")


def test_what_was_dropped_can_be_hidden(page: Page) -> None:
    page.keyboard.press("d")
    assert visible(page) == ["a", "b", "c", "d"]
    assert page.locator(".row.dropped:visible").count() == 0
    page.get_by_label("Hide what was dropped").uncheck()
    assert page.locator(".row.dropped:visible").count() == 5


def test_a_long_beginning_of_ids_is_short_in_the_list_and_whole_in_a_copy(browser: Browser, tmp_path: Path) -> None:
    prefix = "CC-MAIN-20260118-segment-00000000"
    documents = [made(f"{prefix}{n}", "text", None) for n in (1, 2)]
    with opened(browser, tmp_path, DocumentPage("s", documents, "2")) as (page, _, _):
        entry = page.locator(".index bdi").first
        assert entry.bounding_box()["width"] < 60  # type: ignore[index]
        copied = entry.evaluate("e => { getSelection().selectAllChildren(e); return getSelection().toString(); }")
        assert copied == f"{prefix}1"
        expect(page.locator("h2")).to_have_count(2)
        for number in (1, 2):
            reads(page.locator("h2").nth(number - 1), f"{prefix}{number}")


@pytest.mark.parametrize("width", [360, 1600])
def test_nothing_is_wider_than_the_page(browser: Browser, tmp_path: Path, width: int) -> None:
    long = [
        ShownRow(0, "text", "x" * 900),
        ShownRow(1, "text", f"```\n{'code ' * 200}\n```"),
        ShownRow(2, "image", name="n" * 300),
    ]
    shown = DocumentPage("key" * 60, [ShownDocument("id" * 150, tuple(long), {"url": "u" * 500})], "1 document")
    with opened(browser, tmp_path, shown, viewport={"width": width, "height": 800}, color_scheme="dark") as (
        page,
        _,
        _,
    ):
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        colours = page.locator(".row p").first.evaluate(
            "p => [getComputedStyle(p).color, getComputedStyle(document.body).backgroundColor]"
        )
        assert colours == ["rgb(232, 235, 241)", "rgb(18, 21, 28)"]


def test_without_script_everything_is_there(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, tmp_path, DocumentPage("s", DOCUMENTS, ""), java_script_enabled=False) as (page, _, _):
        assert len(visible(page)) == 5
