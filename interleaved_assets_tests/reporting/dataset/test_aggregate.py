"""Adding up shards: every count, the order of shards to check first, and memory that does not grow with rows."""

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from interleaved_assets.pipeline.run.record import Counts
from interleaved_assets.pipeline.status.status import COMPLETE, State, Status
from interleaved_assets.reporting.dataset.aggregate import Example, Reason, aggregate
from interleaved_assets.reporting.figures.facts import ShardFacts
from interleaved_assets.reporting.figures.measures import measure_of, measures_of
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets_tests.reporting.shards import flyers, guides, ledger

SELECTION = SelectionSettings()
MEASURES = [measure for measure in measures_of(SELECTION) if measure.has_bounds]


def test_every_count_is_the_sum_over_the_shards() -> None:
    data = aggregate(iter([flyers(), guides()]), MEASURES)
    assert data.totals == [("samples", 4, 3), ("images", 8, 4), ("rows", 18, 13)]
    assert data.rows == {
        Reason("filtered", "sharpness_below"): 1,
        Reason("filtered", "qr_above"): 1,
        Reason("filtered", "undecodable_image"): 1,
        Reason("filtered", "sample_dropped"): 2,
    }
    assert data.images[Reason("filtered", "sample_dropped")] == 1
    assert data.samples[Reason("filtered", "sample_dropped")] == 1
    assert data.by_frequency()[0].name == "sample_dropped"
    assert data.errors == {"undecodable_image": 1}
    assert data.dropped_by(measure_of("sharpness", SELECTION)) == (1, 1)
    assert data.dropped_by(measure_of("clip", SELECTION)) == (0, 0)
    assert data.examples[Reason("filtered", "qr_above")] == [
        Example("web/flyers|000", "filtered", "a", 4, "image", 0.2, 0.05, None)
    ]


def test_scores_of_all_shards_are_in_one_distribution() -> None:
    data = aggregate([flyers(), guides()], MEASURES)
    sharpness = data.distributions["sharpness"]
    values = [640, 41.25, 900, 120, 2000, 300, 500]
    assert (sharpness.count, sharpness.missing, sharpness.kept) == (7, 1, 6)
    assert sharpness.percentiles((5.0, 50.0, 95.0)) == np.percentile(values, (5, 50, 95)).tolist()
    assert [distribution.measure.filter for distribution in data.scored] == ["sharpness", "qr"]


def test_values_that_no_score_table_holds_can_be_given() -> None:
    data = aggregate([replace(flyers(), sample_scores=pa.table({"ratio": [0.01, 0.5, 2.0]})), guides()], MEASURES)
    assert data.distributions["ratio"].count == 3
    assert data.distributions["ratio"].percentiles((50.0,)) == [0.5]


def test_shards_are_ordered_by_how_urgent_they_are() -> None:
    def shard(key: str, kept: int, **others: object) -> ShardFacts:
        facts = ShardFacts(key, Counts(rows=10, images=10), Counts(rows=kept, images=kept))
        return replace(facts, **others)

    lost = shard("lost", 10, ledger=ledger([("s", 0, "image", "qr_above", 1.0, 0.05, None)]))
    data = aggregate(
        [
            shard("good", 10),
            shard("half", 5),
            shard("errors", 10, errors={"short_read": 3}),
            lost,
            *(shard(state, 10, status=Status(state, state)) for state in sorted(State) if state is not State.COMPLETE),
            shard("none", 0),
            ShardFacts("empty"),
        ],
        MEASURES,
    )
    order = [line.key for line in data.worst()]
    states = ["failed", "unreadable", "missing", "stale", "vanished"]
    assert order == [*states, "lost", "none", "half", "errors", "empty", "good"]
    assert [line.key for line in data.worst(2)] == order[:2]
    assert {line.key: line.unaccounted for line in data.shards if line.unaccounted} == {"lost": -1}
    assert {line.key: line.keep_rate for line in data.shards} == {
        "good": 1.0,
        "half": 0.5,
        "errors": 1.0,
        "lost": 1.0,
        "none": 0.0,
        "empty": None,
        **dict.fromkeys(states, 1.0),
    }


def test_shards_by_status() -> None:
    stale = [Status(State.STALE, f"{stage} stale: raw_shards changed", stage) for stage in ("normalized", "filtered")]
    statuses = [*[stale[0]] * 2, *[stale[1]] * 5, Status(State.FAILED, "filtered failed", "filtered"), COMPLETE]
    shards = [ShardFacts(f"{9 - number}", status=status) for number, status in enumerate(statuses)]
    data = aggregate(shards, MEASURES)
    assert [(line.status, line.shards, line.examples) for line in data.by_status()] == [
        (statuses[7], 1, "2"),
        (stale[1], 5, "3, 4, 5 (3 of 5)"),
        (stale[0], 2, "8, 9"),
        (COMPLETE, 1, "1"),
    ]
    assert data.by_state() == {State.STALE: 7, State.FAILED: 1, State.COMPLETE: 1}


def test_examples_of_a_reason_come_from_several_shards_and_of_each_modality_in_turn() -> None:
    kinds = ["metadata", "text", "text", "text", "text", "image"]
    drops = [("s", number - 1, kind, "ratio_above", 2.0, 1.0, None) for number, kind in enumerate(kinds)]
    shards = [ShardFacts(key, ledger=ledger(drops)) for key in "abc"]
    [examples] = aggregate(shards, MEASURES).examples.values()
    assert [(example.shard, example.position, example.modality) for example in examples] == [
        (key, *row) for key in "ab" for row in ((4, "image"), (0, "text"), (-1, "metadata"))
    ]


def test_the_main_reason_is_the_most_frequent_and_then_the_first_by_name() -> None:
    drops = [("s", number, "image", reason, 1.0, 2.0, None) for number, reason in enumerate(("b_below", "a_below"))]
    [line] = aggregate([ShardFacts("k", ledger=ledger(drops))], MEASURES).shards
    assert line.main_reason == "a_below"
    [line] = aggregate([guides()], MEASURES).shards
    assert line.main_reason == ""


def test_of_many_shards_only_the_scores_are_held() -> None:
    def shards(count: int) -> Iterator[ShardFacts]:
        rng = np.random.default_rng(1)
        for number in range(count):
            table = pa.table({"sharpness": rng.lognormal(6, 1, 5000), "qr_area_ratio": rng.random(5000)})
            yield ShardFacts(f"s{number}", scores=table)

    aggregate(shards(2), MEASURES)
    tracemalloc.start()
    data = aggregate(shards(100), MEASURES)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert data.distributions["sharpness"].count == 500_000
    assert held < 8 * 2 * 500_000 + 500_000  # 8 bytes for each score of each image


def test_final_tars_without_a_raw_tar_and_those_of_the_same_content() -> None:
    gone = Status(State.VANISHED, "vanished")
    shards = [
        ShardFacts("b", published=("sha256:1", "final:1")),
        ShardFacts("a", published=("sha256:2", "final:1"), status=gone),  # other bytes, the same rows
        ShardFacts("d", published=("etag:3",)),
        ShardFacts("c", published=("etag:3",), status=gone),  # the same raw shard, of which nothing was kept
        ShardFacts("e", published=("sha256:5", "final:5")),
        ShardFacts("f", status=gone),  # its final tar was deleted
    ]
    data = aggregate(shards, MEASURES)
    assert data.published(State.VANISHED) == ["a", "c"]
    assert data.published_twice() == [("a", "b"), ("c", "d")]
