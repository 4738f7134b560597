"""Contact sheets: which pictures are chosen, what stands beside them, and how large the sheet in the event log is."""

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa

from interleaved_assets.pipeline.lineage.contents import RowKey
from interleaved_assets.reporting.figures.drops import choose_drops, common_prefix
from interleaved_assets.reporting.figures.facts import ImageKey, thumbnails_in
from interleaved_assets.reporting.figures.measures import measures_of
from interleaved_assets.reporting.shard.tiles import Tile, choose_pictures, compared_texts, markdown_tiles, tiles_of
from interleaved_assets.scoring.images.thumbnail import smaller_thumbnail, thumbnail
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets_tests.reporting.shards import flyers, ledger, scores, with_thumbnails

MEASURES = measures_of(SelectionSettings(max_aspect_ratio=2))


def noise(seed: int) -> bytes:
    """A thumbnail that compresses badly."""
    return thumbnail(np.random.default_rng(seed).integers(0, 256, (128, 128, 3), np.uint8))


def test_chosen_are_the_dropped_by_turns_and_the_kept() -> None:
    facts = flyers()
    dropped, kept = choose_pictures(facts.scores, facts.ledger, 24, 24)
    assert dropped == [("a", 4), ("a", 2), ("b", 1), ("b", 0)]
    assert kept == [("a", 1), ("c", 0)]


def test_a_rare_reason_is_seen_among_many_drops_and_kept_ones_are_spread_out() -> None:
    table = scores([(f"s{number:03d}", 0, 10.0 + number, 0.0) for number in range(200)])
    drops = [(f"s{number:03d}", 0, "image", "sharpness_below", 1.0, 100.0, None) for number in range(90)]
    drops[50] = ("s050", 0, "image", "qr_above", 0.5, 0.05, None)
    dropped, kept = choose_pictures(table, ledger(drops), 8, 6)
    assert (len(dropped), len(kept)) == (8, 6)
    assert dropped[0] == ("s050", 0)
    assert (kept[0], kept[-1]) == (("s090", 0), ("s199", 0))
    assert not set(dropped) & set(kept)
    assert choose_drops(ledger(drops), 3)["reason"].to_pylist() == ["qr_above", "sharpness_below", "sharpness_below"]


def test_a_tile_has_its_reason_and_every_score() -> None:
    facts = with_thumbnails(flyers())
    keys = [ImageKey("a", 4), ImageKey("b", 0), ImageKey("b", 1), ImageKey("a", 1)]
    above, with_sample, damaged, kept = tiles_of(
        facts, keys, MEASURES, {keys[0]: "A text."}, thumbnails_in(facts.scores)
    )
    assert above.reason == "QR area 0.2 ≥ 0.05"
    assert above.scores == ("300×200", "sharpness 900", "QR area 0.2")
    assert above.compared == "A text."
    assert with_sample.reason == "with its sample"
    assert (damaged.thumbnail, damaged.reason) == (None, "undecodable_image")
    assert (damaged.scores, damaged.error) == (("size unknown",), "undecodable_image: 0 bytes")
    assert (kept.reason, kept.compared, kept.thumbnail is None) == (None, None, False)


def test_the_text_that_clip_compared_is_named_by_its_row() -> None:
    facts = flyers()
    positions = pa.array([0, None, 3, None, None, None], pa.int32())
    table = facts.scores.append_column("clip_text_position", positions)
    keys = [ImageKey("a", 1), ImageKey("a", 2)]
    assert compared_texts(table, keys) == {("a", 1): RowKey("a", 0, "text")}
    assert compared_texts(facts.scores, keys) == {}


def test_the_sheet_is_a_table_whose_ids_can_be_copied() -> None:
    facts = with_thumbnails(replace(flyers(prefix="crawl-2026/")))
    keys = [ImageKey("crawl-2026/a", 4), ImageKey("crawl-2026/b", 1)]
    [kept] = tiles_of(facts, [ImageKey("crawl-2026/c", 0)], MEASURES, {}, thumbnails_in(facts.scores))
    first, blank, *lines = markdown_tiles(
        tiles_of(facts, keys, MEASURES, {keys[0]: "1 | 2"}, thumbnails_in(facts.scores)),
        [kept],
        max_bytes=9_000,
        all_dropped=2,
        all_kept=1,
    ).split("\n")
    assert (first, blank) == ("Ids begin with crawl-2026/", "")
    cells = [[cell.strip() for cell in line.split(" | ")] for line in lines[2:]]
    assert cells[0][0].startswith("| ![picture](data:image/webp;base64,")
    assert cells[0][1] == "**dropped**: QR area 0.2 ≥ 0.05"
    assert lines[2].endswith("| 300×200, sharpness 900, QR area 0.2, compared with “1 \\| 2” | a | 4 |")
    assert lines[3] == "|  | **dropped**: undecodable\\_image: 0 bytes | size unknown | b | 1 |"
    assert cells[2][1:] == ["kept", "300×200, sharpness 2,000, QR area 0.01", "c", "0 |"]


def test_the_sheet_fits_into_its_bytes_and_says_what_it_left_out() -> None:
    tiles = [Tile(ImageKey(f"s{number}", 0), noise(number), "x", ("1×1",), None, None) for number in range(20)]
    kept = [tile._replace(reason=None) for tile in tiles]
    sheet = markdown_tiles(tiles, kept, max_bytes=16_000, all_dropped=20, all_kept=43)
    assert 12_000 < len(sheet.encode()) <= 16_000
    shown = (sheet.count("**dropped**"), sheet.count("| kept |"))
    assert min(shown) >= 1
    said = re.search(r"(\d+) of 20 dropped pictures and (\d+) of 43 kept ones; more are on the page\.", sheet)
    assert said
    assert shown == (int(said[1]), int(said[2]))
    assert "more are on the page" not in markdown_tiles(tiles[:1], [], max_bytes=16_000, all_dropped=1, all_kept=0)
    assert markdown_tiles(tiles[:2], kept[:1], max_bytes=200, all_dropped=2, all_kept=1) == (
        "0 of 2 dropped pictures and 0 of 1 kept ones; more are on the page."
    )


def test_a_small_thumbnail_is_a_fifth_of_the_stored_one() -> None:
    stored = noise(0)
    assert smaller_thumbnail(stored).startswith(b"RIFF")
    assert len(smaller_thumbnail(stored)) < len(stored) / 5


def test_ids_lose_only_a_long_beginning_that_all_of_them_share() -> None:
    assert common_prefix(["crawl-2026/a", "crawl-2026/b", "crawl-2026/ab"]) == "crawl-2026/"
    assert common_prefix(["doc-1", "doc-2"]) == ""
    assert common_prefix(["a-long-id-of-one-sample"] * 2) == ""
    assert common_prefix([]) == ""
