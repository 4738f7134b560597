"""The data-set report: its figures, its sections, that it loads nothing and trusts nothing that comes from data."""

import base64
import hashlib
import re
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from html.parser import HTMLParser
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from interleaved_assets.model.errors import ROW_ERROR_CODES
from interleaved_assets.pipeline.run.record import Counts
from interleaved_assets.pipeline.run.throughput import Throughput
from interleaved_assets.pipeline.status.status import State, Status
from interleaved_assets.reporting.dataset import report as module
from interleaved_assets.reporting.dataset.aggregate import DatasetAggregate, aggregate
from interleaved_assets.reporting.dataset.examples import Held
from interleaved_assets.reporting.dataset.report import about, html_report, summary
from interleaved_assets.reporting.figures.facts import ShardFacts
from interleaved_assets.reporting.figures.measures import measures_of
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets_tests.documents import project
from interleaved_assets_tests.reporting.shards import flyers, guides, ledger

MEASURES = [measure for measure in measures_of(SelectionSettings()) if measure.has_bounds]
MISSING = Status(State.MISSING, "no image_scores", "image_scores")
DROPPED_TEXT = ("a", 3, "text", "ratio_above", 2.0, 1.0, None)
SECTIONS = ("totals", "current", "dropped", "filters", "try", "scores", "shards", "errors")
ATTRIBUTES_THAT_LOAD = ("src", "href", "srcset", "data", "action", "poster", "background")


class Page(HTMLParser):
    """What a browser would make of a page: elements with their attributes, tables, text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self._open[-1:]):
            self.text += data
        if {"td", "th"} & set(self._open):
            self.rows[-1][-1] += data

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            continue

    def row(self, first: str) -> list[str]:
        """The first row of any table whose first cell says ``first``."""
        return next([" ".join(cell.split()) for cell in row] for row in self.rows if row and row[0].strip() == first)


def both() -> DatasetAggregate:
    return aggregate([flyers(), guides()], MEASURES)


@cache
def page_of_both() -> str:
    """Drawn once for all tests that read it."""
    return html_report(both())


def test_filters_of_strings_show_what_they_keep() -> None:
    dropped = [("a", -1, "metadata"), ("a", 0, "text"), ("a", 1, "image")]
    facts = replace(
        flyers(),
        ledger=ledger([(*row, "document_language_not_in", None, None, "language is la") for row in dropped]),
    )
    selection = SelectionSettings.model_validate({"document": {"language": {"in": ["en", "de"], "not_in": ["und"]}}})
    for measures in (MEASURES, ()):
        page = Page(html_report(aggregate([facts], measures), selection=selection))
        assert page.row("document_language")[2:] == ["keep en, de and drop und", "strings", "–", "1", "1"]


def test_the_figures_of_the_page() -> None:
    page = Page(html_report(both(), subtitle="s3://bucket/raw"))
    words = " ".join(page.text.split())
    assert "Data set report s3://bucket/raw" in words
    assert "shards 2 2 complete" in words
    assert "samples kept 3 of 4, 75.0 %" in words
    assert "images kept 4 of 8, 50.0 %" in words
    assert "rows kept 13 of 18, 72.2 %" in words
    assert page.row("qr_above") == [
        "qr_above",
        "filtered",
        "1",
        "1",
        "1",
        "web/flyers|000 · a at position 4: measured 0.2, threshold 0.05",
    ]
    assert page.row("undecodable_image")[-1] == "web/flyers|000 · b at position 1: undecodable_image: 0 bytes"
    assert f"undecodable_image 1 of 1 row: {ROW_ERROR_CODES['undecodable_image']}" in words
    assert page.row("sharpness") == ["sharpness", "Sharpness", "keep ≥ 100", "7", "1", "85.7 %", "1", "1"]
    assert page.row("clip") == ["clip", "CLIP similarity", "keep ≥ 0.15", "not scored", "–", "0", "0"]
    assert page.row("ratio")[3] == "filters samples"
    assert page.row("web/flyers|000") == [
        "web/flyers|000",
        "complete",
        "sample_dropped",
        "33.3 %",
        "6",
        "3",
        "2",
        "5",
        "1",
    ]
    assert [row[0] for row in page.rows if row[:1] and row[0].strip().startswith("web/")] == [
        "web/flyers|000",
        "web/guides",
    ]


def test_the_share_of_a_shard_without_images_says_that_it_is_of_rows() -> None:
    texts = replace(
        flyers(), counts_in=Counts(rows=16, samples=1, texts=15), counts_out=Counts(rows=15, samples=1, texts=14)
    )
    page = Page(html_report(aggregate([texts, guides()], MEASURES)))
    assert page.row(texts.key)[3:5] == ["93.8 % of rows", "0"]
    assert page.row(guides().key)[3].endswith(" %")


def test_a_value_that_missed_its_threshold_is_not_shown_as_the_threshold() -> None:
    dropped = [("a", 4, "image", "sharpness_below", 99.96, 100.0, None)]
    words = " ".join(Page(html_report(aggregate([replace(flyers(), ledger=ledger(dropped))], MEASURES))).text.split())
    assert words.count("measured 99.96, threshold 100") == 2


def test_percentiles_are_those_of_numpy() -> None:
    values = [640, 41.25, 900, 120, 2000, 300, 500]
    page = Page(page_of_both())
    expected = [
        f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" for value in np.percentile(values, module.PERCENTS)
    ]
    assert page.row("Sharpness") == ["Sharpness", "7", f"{np.mean(values):.3g}", *expected]


def test_every_section_is_there_and_linked() -> None:
    page = Page(page_of_both())
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert set(SECTIONS) <= set(ids)
    links = [attributes["href"] for tag, attributes in page.elements if tag == "a"]
    assert links == [f"#{section}" for section in SECTIONS]
    # the bar of reasons, and a histogram and a curve for each of the two scores; and a slider for each of their bounds
    assert sum(tag == "svg" for tag, _ in page.elements) == 5 + 2
    assert [attributes["aria-label"] for _, attributes in page.elements if attributes.get("type") == "range"] == [
        "min_sharpness",
        "max_qr_area_ratio",
    ]


def test_the_page_loads_nothing() -> None:
    page = page_of_both()
    assert not re.findall(r"https?://|//[a-z]|url\((?!#)|@import", page)
    parsed = Page(page)
    for tag, attributes in parsed.elements:
        for name in ATTRIBUTES_THAT_LOAD:
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:image/")), (tag, name, value)
        assert not any(name.startswith("on") for name in attributes), tag
    assert "link" not in {tag for tag, _ in parsed.elements}
    [policy] = [attributes["content"] for tag, attributes in parsed.elements if "http-equiv" in attributes]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:;")
    assert "prefers-color-scheme: dark" in page


def test_the_policy_names_the_hash_of_the_script() -> None:
    page = page_of_both()
    [script] = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page


def test_text_from_data_is_escaped() -> None:
    attack = "<script>alert(1)</script>\x1b[2J\u202e"
    hostile = ShardFacts(
        key=f"k{attack}",
        counts_in=Counts(rows=1),
        ledger=ledger([(attack, 0, "image", "x$_{_below", None, None, f"{attack} | `x` **bold**")]),
        errors={attack: 1},
        status=Status(State.STALE, f'"><img src=x>{attack}'),
    )
    broken = replace(guides(), key="broken", status=MISSING, problem=f"<img src=x>{attack}")
    page = html_report(aggregate([hostile, broken], MEASURES), subtitle=attack, problems=[f"<img src=y>{attack}"])
    parsed = Page(page)
    assert [attributes for tag, attributes in parsed.elements if tag == "script"] == [
        {"type": "application/json", "id": "sliders"},
        {},
    ]
    assert "img" not in {tag for tag, _ in parsed.elements}
    markdown = summary(aggregate([hostile, broken], MEASURES), [f"<img src=y>{attack}"])
    assert "<script" not in markdown
    # an override of the writing direction would turn the text behind it around
    assert not {"\x1b", "\u202e"} & {*page, *markdown}
    assert "<img" not in markdown


def test_the_same_data_gives_the_same_page() -> None:
    assert html_report(both()) == html_report(both())
    assert html_report(both()) == html_report(aggregate([guides(), flyers()], MEASURES))


def test_a_long_table_is_cut_with_a_note() -> None:
    shards = [
        replace(guides(), key=f"web/{number:04d}", counts_out=Counts(rows=4, images=number % 3))
        for number in range(1500)
    ]
    page = Page(html_report(aggregate(shards, MEASURES)))
    assert "The table has 1,000 of 1,500 shards; all of them count in the sums." in page.text
    found = [row[0] for row in page.rows if row[:1] and row[0].strip().startswith("web/")]
    worst = [f"web/{number:04d}" for images in range(3) for number in range(images, 1500, 3)]
    assert found == worst[:1000]


def test_the_summary_in_short() -> None:
    markdown = summary(both())
    assert "2 shards (2 complete)" in markdown
    assert "| images | 8 | 4 | 50.0 % |" in markdown
    assert len(markdown) < 500


def test_no_shards() -> None:
    data = aggregate([], MEASURES)
    page = Page(html_report(data))
    assert "No shard has been materialized yet." in page.text
    assert "There are no shards." in page.text
    assert "Nothing was dropped." in page.text
    assert "No row has an error." in page.text
    assert "No shard has been materialized yet." in summary(data)


def test_everything_dropped() -> None:
    data = aggregate([replace(flyers(), counts_out=Counts())], MEASURES)
    page = Page(html_report(data))
    assert "Everything was dropped." in page.text
    # 14 rows in, 5 in the ledger, none kept
    assert "Rows neither kept nor in the ledger, or counted twice: 9 rows in 1 shard." in page.text
    assert "9 rows unaccounted for" in page.text


def test_no_scores_and_incomplete_shards() -> None:
    data = aggregate([replace(flyers(), scores=None, status=MISSING), guides()], MEASURES[:0])
    page = Page(html_report(data))
    assert "No scores are stored" in page.text
    assert "1 complete, 1 missing" in " ".join(page.text.split())
    assert page.row("web/flyers|000")[1] == "missing no image_scores"
    assert page.row("missing") == ["missing", "no image_scores", "1", "web/flyers|000"]
    assert page.row("complete") == [
        "complete",
        "every stage is done from the present inputs, settings and code",
        "1",
        "web/guides",
    ]
    classes = [attributes.get("class") for _, attributes in page.elements]
    assert classes.count("badge bad") == 2  # of the status, and of the shard


def test_shards_that_are_not_current_are_in_the_summary() -> None:
    stale = Status(State.STALE, "filtered stale: settings changed: min_sharpness 100.0 → 80.0", "filtered")
    shards = [replace(guides(), key=f"web/{number}", status=stale) for number in range(5)]
    markdown = summary(aggregate([flyers(), *shards], MEASURES), ["the raw root did not answer"])
    assert markdown.startswith("6 shards (5 stale, 1 complete)\n\n**the raw root did not answer**\n")
    line = (
        "| stale | filtered stale: settings changed: min\\_sharpness 100.0 → 80.0 | web/0, web/1, web/2 (3 of 5) | 5 |"
    )
    assert line in markdown
    assert "| complete |" not in markdown
    assert "not current" not in summary(both())  # nothing to say


def test_a_problem_of_the_data_set_and_of_a_shard_is_on_the_page() -> None:
    status = Status(State.UNREADABLE, "unreadable: a record cannot be read")
    broken = ShardFacts("web/x", status=status, problem="records/x.json is no record")
    page = Page(html_report(aggregate([broken], MEASURES), problems=["the raw root did not answer"]))
    assert page.row("unreadable")[1:] == ["a record cannot be read: records/x.json is no record", "1", "web/x"]
    assert "the raw root did not answer" in page.text
    assert page.row("web/x")[1] == "unreadable a record cannot be read: records/x.json is no record"


def test_shards_not_fully_counted_are_noted() -> None:
    stale = Status(State.STALE, "image_scores stale: normalized changed", "image_scores")
    to_normalized = replace(guides(), key="web/new", counted_to="normalized", status=stale)
    to_filtered = replace(flyers(), key="web/half", counted_to="filtered", status=stale)
    data = aggregate([to_normalized, to_filtered, replace(to_filtered, key="web/other"), guides()], MEASURES)
    page = Page(html_report(data))
    said = (
        "Not fully counted: 1 shard up to normalized, 2 shards up to filtered. Rows that later stages will drop still "
        "count as kept here."
    )
    assert said in page.text
    assert said in summary(data).replace("\\_", "_")
    assert page.row("web/new")[1] == "stale image_scores stale: normalized changed; counted to normalized"
    assert page.row("web/new")[3] == "–"  # selection has not run on it
    assert "neither kept nor in the ledger" not in page.text
    classes = [attributes.get("class") for _, attributes in page.elements]
    assert (classes.count("note"), classes.count("problem")) == (1, 0)  # nothing is wrong with a shard under way
    current = Page(page_of_both())
    assert "Not fully counted" not in current.text
    assert "has to run again" not in current.text


@pytest.mark.parametrize(
    ("stage", "counted_to", "noted"),
    [
        ("filtered", "final_tars", True),
        ("image_scores", "filtered", True),
        ("final_tars", "filtered", False),
        ("image_scores", "normalized", False),
        (None, "final_tars", False),
    ],
)
def test_drops_under_earlier_thresholds_are_noted(stage: str | None, counted_to: str, noted: bool) -> None:
    shard = replace(flyers(), status=Status(State.STALE, "stale", stage), counted_to=counted_to)
    page = Page(html_report(aggregate([shard, guides()], MEASURES)))
    said = (
        "selection has to run again (1 shard), the drops are those of the last run",
        "selection has to run again (1 shard), the counts are those of the last run",
    )
    assert [text in page.text for text in said] == [noted, noted]


def test_deleted_scores_are_noted() -> None:
    gone = [
        replace(flyers(), scores=None, not_stored=("image_scores", "sample_scores")),
        replace(guides(), not_stored=("sample_scores",)),
    ]
    data = aggregate(gone, MEASURES)
    said = "Not among the scores, because deleted: image_scores of 1 shard, sample_scores of 2 shards."
    page = Page(html_report(data))
    assert said in page.text
    assert "rows kept 13 of 18" in " ".join(page.text.split())
    assert said in summary(data).replace("\\_", "_")


def test_scores_that_are_all_missing() -> None:
    only_errors = replace(flyers(), scores=flyers().scores.slice(4, 1))
    page = Page(html_report(aggregate([only_errors], MEASURES)))
    assert page.row("sharpness")[3:6] == ["0", "1", "–"]
    assert page.row("Sharpness")[-1] == "no values"


def test_the_page_begins_with_a_warning_that_nearly_everything_was_dropped() -> None:
    data = aggregate([replace(flyers(), counts_out=Counts(rows=9, samples=2, images=1))], MEASURES)
    (_, before, kept) = data.totals[1]
    said = f"Nearly everything was dropped: {kept} of {before} images"
    assert said in Page(html_report(data, min_keep_rate=0.5)).text
    assert said in summary(data, min_keep_rate=0.5)
    assert "Nearly everything" not in Page(html_report(data)).text
    share = Counts(rows=200_000, samples=2, images=100_000), Counts(rows=99_999, samples=2, images=4_996)
    data = aggregate([replace(flyers(), counts_in=share[0], counts_out=share[1])], MEASURES)
    said = "4,996 of 100,000 images (4.996%) kept, and checks.min_keep_rate is 5.0%"
    assert said in Page(html_report(data, min_keep_rate=0.05)).text


def test_a_failed_shard_has_its_own_error_and_the_reason_an_example() -> None:
    failed = Status(State.FAILED, "normalized failed", "normalized")
    shards = [ShardFacts(f"web/{name}", status=failed, problem=f"{name}.tar is not a tar") for name in "ab"]
    data = aggregate(shards, MEASURES)
    page = Page(html_report(data))
    assert page.row("failed")[1:3] == ["normalized failed, for example: a.tar is not a tar", "2"]
    assert page.row("web/b")[1] == "failed normalized failed: b.tar is not a tar"
    markdown = summary(data)
    assert "| failed | normalized failed, for example: a.tar is not a tar | web/a, web/b | 2 |" in markdown


def test_examples_show_pictures_and_texts() -> None:
    facts = replace(flyers(), ledger=ledger([("a", 4, "image", "qr_above", 0.2, 0.05, None), DROPPED_TEXT]))
    data = aggregate([facts], MEASURES)
    (picture,), (row,) = data.examples.values()
    held = {picture: Held(b"\xff\xd8\xff", "a.png"), row: Held(text="<b>bold</b>" + "x" * 500)}
    page = Page(html_report(data, held=held))
    [shown] = [attributes for tag, attributes in page.elements if tag == "img"]
    assert shown["src"] == "data:image/jpeg;base64,/9j/"
    assert f"<b>bold</b>{'x' * 389}… (511 characters)" in page.text
    assert page.text.count("1 of 1 row") == 2
    assert "b" not in {tag for tag, _ in page.elements}


def test_the_report_says_when_with_what_and_under_which_settings_it_was_made(tmp_path: Path) -> None:
    settings = project(tmp_path, "[selection]\nmin_sharpness = 80\n")
    described = about(settings, datetime(2026, 1, 31, 6, tzinfo=UTC))
    assert described.versions.keys() == {"interleaved-assets", "dagster", "Python"}
    assert described.versions["dagster"] == metadata.version("dagster")
    page = Page(html_report(both(), about=described))
    assert "Made 2026-01-31 06:00 UTC with interleaved-assets" in page.text
    names = [row[0].strip() for row in page.rows if row and row[0].strip().startswith(("storage.", "selection."))]
    assert names.index("selection.min_sharpness") < names.index("storage.options")  # changed ones come first
    assert page.row("selection.min_sharpness")[1:3] == ["80.0", "100.0"]
    with_clip = about(project(tmp_path, "[clip]\nenabled = true\npretrained = 'openai'\n"))
    assert {"torch", "open_clip_torch"} <= with_clip.versions.keys()


def test_the_speed_of_the_last_runs_by_stage_and_host() -> None:
    hosts = {"10.0.0.2": 30, "10.0.0.1": 70}
    done = Throughput(
        stage="image_scores",
        seconds=50,
        shards=100,
        made=90,
        failed=1,
        images=4000,
        image_bytes=250_000_000,
        queue_seconds=150,
        hosts=hosts,
    )
    page = Page(html_report(both(), throughput=[done]))
    cells = ["image_scores", "90", "2.00", "80.0", "5.00", "1.5", "0.0", "10.0.0.1: 1.40, 10.0.0.2: 0.60"]
    assert [row for row in page.rows if row[0] == "image_scores" and len(row) == len(cells)] == [cells]
    assert "Speed of the last runs" not in page_of_both()


def test_a_stage_that_reads_no_image_has_no_speed_in_images() -> None:
    done = Throughput(stage="document_scores", seconds=50, shards=100, made=100, images=4000)
    page = Page(html_report(both(), throughput=[done]))
    assert page.row("document_scores") == ["document_scores", "100", "2.00", "–", "–", "–", "0.0", "–"]
