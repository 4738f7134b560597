"""One shard's report: what its Markdown and the page say, and how large the Markdown is."""

import re
from dataclasses import replace
from html import escape
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from interleaved_assets.pipeline.run.record import Counts
from interleaved_assets.reporting.figures.facts import ImageKey, ShardFacts, thumbnails_in
from interleaved_assets.reporting.figures.measures import Measure, measures_of
from interleaved_assets.reporting.shard.report import REPORT_BYTES, plots_url, shard_report
from interleaved_assets.reporting.shard.tiles import Tile, choose_pictures, tiles_of
from interleaved_assets.scoring.protocol.filter import Display, ImageFilter
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets_tests.reporting.shard.test_tiles import noise
from interleaved_assets_tests.reporting.shards import flyers, guides, ledger, with_thumbnails

MEASURES = measures_of(SelectionSettings(max_aspect_ratio=2))


def sheet_of(facts: ShardFacts) -> list[list[Tile]]:
    chosen = choose_pictures(facts.scores, facts.ledger, 24, 24)
    return [tiles_of(facts, images, MEASURES, {}, thumbnails_in(facts.scores)) for images in chosen]


def test_a_report_has_counts_plots_and_pictures() -> None:
    facts = with_thumbnails(flyers())
    report = shard_report(facts, MEASURES, *sheet_of(facts))
    assert report.count("](data:image/svg+xml,") == 1
    assert report.count("](data:image/webp;base64,") == 5  # of the six images, one was never decoded
    [url] = re.findall(r"!\[plots\]\(([^)]*)\)", report)
    drawn, all_drawn = unquote(url), unquote(plots_url(facts, MEASURES))
    for measure in MEASURES:
        there = facts.values_of(measure) is not None
        assert (escape(measure.shown.label) in all_drawn) == there
        assert (escape(measure.shown.label) in drawn) == there
    assert "Not drawn" not in report
    assert len(report.encode()) <= REPORT_BYTES


def test_the_report_stays_within_its_bytes_with_many_scores_and_pictures() -> None:
    rng = np.random.default_rng(5)
    shown = {f"head_{number}": Display(f"Head_{number}", "h") for number in range(40)}
    many = [Measure(ImageFilter(name, (name,), display=display), 0.2, 0.9) for name, display in shown.items()]
    values = {measure.filter: rng.random(2000) for measure in many}
    facts = with_thumbnails(replace(flyers(), sample_scores=pa.table(values)))
    tile = Tile(ImageKey("s" * 90, 0), noise(1), "x" * 90, ("1×1",) * 40, "text " * 40, "error " * 40)
    counts = {"counts_in": Counts(images=1100), "counts_out": Counts(images=1040)}
    report = shard_report(replace(facts, **counts), many, [tile] * 60, [tile] * 24)
    assert REPORT_BYTES - 3_000 < len(report.encode()) <= REPORT_BYTES
    left_out = re.findall(r"Head\\_\d+", report)
    assert 20 < len(left_out) < 40
    assert left_out[-1] == "Head\\_39"
    shown = re.search(r"(\d+) of 60 dropped pictures and (\d+) of 1,040 kept ones; more are on the page\.", report)
    assert shown


def test_deleted_scores_are_noted() -> None:
    report = shard_report(replace(flyers(), scores=None, not_stored=("image_scores",)), MEASURES, [], [])
    assert "Not shown, because deleted: image_scores." in report
    assert "image/webp" not in report


def test_contents_of_the_tables() -> None:
    tables, _, _ = shard_report(flyers(), MEASURES).partition("\n\n![plots]")
    assert tables == (
        "|  | in | kept | dropped | kept, share |\n"
        "| --- | ---: | ---: | ---: | ---: |\n"
        "| samples | 3 | 2 | 1 | 66.7 % |\n"
        "| images | 6 | 2 | 4 | 33.3 % |\n"
        "| rows | 14 | 9 | 5 | 64.3 % |\n"
        "\n"
        "| error | meaning | rows |\n"
        "| --- | --- | ---: |\n"
        "| undecodable\\_image | the bytes are no image that a decoder accepts | 1 |\n"
        "\n"
        "| stage | reason | rows | images | texts | share of drops |\n"
        "| --- | --- | ---: | ---: | ---: | ---: |\n"
        "| filtered | sample\\_dropped | 2 | 1 | 0 | 40.0 % |\n"
        "| filtered | qr\\_above | 1 | 1 | 0 | 20.0 % |\n"
        "| filtered | sharpness\\_below | 1 | 1 | 0 | 20.0 % |\n"
        "| filtered | undecodable\\_image | 1 | 1 | 0 | 20.0 % |"
    )


def test_of_many_reasons_the_most_frequent_are_in_the_table() -> None:
    drops = [(f"s{number}", 0, "text", f"reason_{number % 30}", None, None, None) for number in range(100)]
    report = shard_report(replace(flyers(), ledger=ledger(drops)), [])
    assert "| 12 of 30 reasons |" in report
    assert report.count("| filtered |") == 12


def test_nothing_dropped() -> None:
    facts = with_thumbnails(guides())
    report = shard_report(facts, MEASURES, *sheet_of(facts))
    assert "\n\nNothing was dropped.\n\n" in report
    assert "**dropped**" not in report


def test_a_shard_that_has_not_been_scored_or_filtered() -> None:
    report = shard_report(ShardFacts("k", status="no image_scores"), MEASURES, [], [])
    assert "| rows | 0 | 0 | 0 | – |" in report
    assert "nothing came in" in unquote(report)


def test_rows_that_are_unaccounted_for_are_said() -> None:
    report = shard_report(replace(flyers(), counts_out=Counts(rows=7, samples=2, images=2)), MEASURES)
    assert "**Rows neither kept nor in the ledger, or counted twice: 2 rows.**" in report
