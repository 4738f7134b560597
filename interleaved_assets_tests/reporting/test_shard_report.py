"""One shard's report: which pictures are chosen, what the pieces say, and how large they are."""

import io
from collections import Counter
from dataclasses import replace

import pytest
from PIL import Image

from interleaved_assets.reporting import shard_report as module
from interleaved_assets.reporting.contact_sheet import Tile, contact_sheet
from interleaved_assets.reporting.facts import ImageKey, ShardFacts
from interleaved_assets.reporting.measures import measures_of
from interleaved_assets.reporting.shard_report import choose_pictures, shard_report
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets_tests.reporting.shards import flyers, guides, ledger, pictures, scores

MEASURES = measures_of(SelectionSettings(max_aspect_ratio=2))


def test_chosen_are_the_dropped_by_turns_and_the_kept() -> None:
    facts = flyers()
    chosen = choose_pictures(facts.scores, facts.ledger)
    assert chosen.dropped == [("a", 4), ("a", 2), ("b", 1), ("b", 0)]
    assert chosen.kept == [("a", 1), ("c", 0)]


def test_a_rare_reason_is_seen_among_many_drops_and_kept_ones_are_spread_out() -> None:
    table = scores([(f"s{number:03d}", 0, 10.0 + number, 0.0) for number in range(200)])
    drops = [(f"s{number:03d}", 0, "image", "sharpness_below", 1.0, 100.0, None) for number in range(90)]
    drops[50] = ("s050", 0, "image", "qr_above", 0.5, 0.05, None)
    chosen = choose_pictures(table, ledger(drops), limit=8)
    assert len(chosen.dropped) == len(chosen.kept) == 8
    assert chosen.dropped[0] == ("s050", 0)
    assert (chosen.kept[0], chosen.kept[-1]) == (("s090", 0), ("s199", 0))
    assert not set(chosen.dropped) & set(chosen.kept)
    assert len(choose_pictures(table, None).kept) == 24


def test_the_pieces_of_a_report() -> None:
    facts = flyers()
    chosen = choose_pictures(facts.scores, facts.ledger)
    pieces = shard_report(facts, MEASURES, pictures([*chosen.dropped, *chosen.kept]))
    assert set(pieces) == {
        "summary",
        "drops",
        "kept_and_dropped",
        "histogram_aspect",
        "histogram_sharpness",
        "histogram_qr",
        "dropped_pictures",
        "kept_pictures",
    }
    for name, piece in pieces.items():
        if isinstance(piece, str):
            continue
        with Image.open(io.BytesIO(piece)) as image:
            assert image.format == ("JPEG" if name.endswith("_pictures") else "PNG"), name
        assert len(piece) < (60_000 if name.endswith("_pictures") else 40_000), name


def test_deleted_scores_are_noted() -> None:
    pieces = shard_report(replace(flyers(), scores=None, not_stored=("image_scores",)), MEASURES, {})
    assert "Not shown, because deleted: image_scores." in pieces["summary"]
    assert "dropped_pictures" not in pieces


def test_contents_of_the_tables() -> None:
    pieces = shard_report(flyers(), MEASURES)
    assert pieces["summary"] == (
        "|  | in | kept | dropped | kept, share |\n"
        "| --- | ---: | ---: | ---: | ---: |\n"
        "| samples | 3 | 2 | 1 | 66.7 % |\n"
        "| images | 6 | 2 | 4 | 33.3 % |\n"
        "| rows | 14 | 9 | 5 | 64.3 % |\n"
        "\n"
        "| error | meaning | rows |\n"
        "| --- | --- | ---: |\n"
        "| undecodable\\_image | the bytes are no image that a decoder accepts | 1 |"
    )
    assert pieces["drops"] == (
        "| stage | reason | rows | images | texts | share of drops |\n"
        "| --- | --- | ---: | ---: | ---: | ---: |\n"
        "| filtered | sample\\_dropped | 2 | 1 | 0 | 40.0 % |\n"
        "| filtered | qr\\_above | 1 | 1 | 0 | 20.0 % |\n"
        "| filtered | sharpness\\_below | 1 | 1 | 0 | 20.0 % |\n"
        "| filtered | undecodable\\_image | 1 | 1 | 0 | 20.0 % |"
    )


def test_captions_name_the_measured_value_and_the_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tile] = []

    def record(tiles: list[Tile], **options: int) -> bytes:
        seen.extend(tiles)
        return contact_sheet(tiles, **options)

    monkeypatch.setattr(module, "contact_sheet", record)
    facts = flyers()
    wide = ("c", 0, "image", "aspect_above", 2.5, 2.0, None)
    facts = replace(
        facts,
        ledger=ledger([*[tuple(row.values())[:3] + tuple(row.values())[4:] for row in facts.ledger.to_pylist()], wide]),
    )
    chosen = choose_pictures(facts.scores, facts.ledger)
    shard_report(facts, MEASURES, pictures([*chosen.dropped, *chosen.kept]))
    lines = {tile.lines[-1]: tile for tile in seen}
    assert lines["a at 2"].lines == ("sharpness 41.2 < 100", "300×200", "QR area 0", "a at 2")
    assert lines["a at 4"].lines == ("QR area 0.2 ≥ 0.05", "300×200", "sharpness 900", "a at 4")
    assert lines["c at 0"].lines == ("aspect 2.5 > 2", "300×200", "sharpness 2,000", "c at 0")
    assert lines["b at 0"].lines == ("with its sample", "300×200", "sharpness 120", "b at 0")
    assert lines["b at 1"].lines == ("undecodable_image", "size unknown", "b at 1")
    assert (lines["b at 1"].data, lines["b at 1"].error) == (None, "undecodable_image: 0 bytes")
    assert lines["a at 1"].lines == ("sharpness 640", "QR area 0", "300×200", "a at 1")
    assert Counter(tile.dropped for tile in seen) == {True: 5, False: 1}


def test_nothing_dropped() -> None:
    facts = guides()
    chosen = choose_pictures(facts.scores, facts.ledger)
    assert chosen.dropped == []
    pieces = shard_report(facts, MEASURES, pictures(chosen.kept))
    assert pieces["drops"] == "Nothing was dropped."
    assert "dropped_pictures" not in pieces
    assert "kept_pictures" in pieces


def test_a_shard_that_has_not_been_scored_or_filtered() -> None:
    pieces = shard_report(ShardFacts("k", status="no image_scores"), MEASURES, {ImageKey("a", 0): None})
    assert set(pieces) == {"summary", "drops", "kept_and_dropped"}
    assert "| rows | 0 | 0 | 0 | – |" in str(pieces["summary"])


def test_rows_that_are_unaccounted_for_are_said() -> None:
    pieces = shard_report(replace(flyers(), rows_kept=7), MEASURES)
    assert "**Rows neither kept nor in the ledger, or counted twice: 2 rows.**" in str(pieces["summary"])
