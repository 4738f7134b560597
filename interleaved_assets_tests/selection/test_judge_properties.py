"""Selection equals a row-by-row reference implementation on random rows, scores and settings."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.model.ledger import check_balance
from interleaved_assets.selection.judge import select
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets_tests.selection.tables import document, rows_of, scores_of

COLUMNS = {"sharpness": "sharpness", "qr": "qr_area_ratio", "clip": "clip_score"}
LEVELS = {"sharpness": [50.0, 100.0, 150.0], "qr": [0.0, 0.05, 0.5], "clip": [0.1, 0.15, 0.2]}
FAILS = {
    "sharpness": lambda value: ("sharpness_below", 100.0) if value < 100 else None,
    "qr": lambda value: ("qr_above", 0.05) if value >= 0.05 else None,
    "clip": lambda value: ("clip_below", 0.15) if value < 0.15 else None,
}
ERRORS = [None, "undecodable_image: x", "too_many_pixels: y", "no_text: z"]


@st.composite
def shards(draw):
    """Rows of some samples with their words, and scores of most images."""
    rows, words, scores = [], {}, {}
    for number in range(draw(st.integers(0, 5))):
        name = f"s{number}"
        sample = document(name, draw(st.text("tix.", max_size=6)), metadata=draw(st.booleans()))
        rows += sample
        for _, position, modality in sample:
            if modality == "text":
                words[name, position] = draw(st.integers(0, 12))
            elif modality == "image" and draw(st.integers(0, 9)):
                score = {COLUMNS[name]: draw(st.sampled_from([*levels, None])) for name, levels in LEVELS.items()}
                scores[name, position] = {
                    **score,
                    "score_error": draw(st.sampled_from(ERRORS[:3])),
                    "clip_error": draw(st.sampled_from(ERRORS)),
                }
    return draw(st.permutations(rows)), words, scores


@st.composite
def choices(draw):
    """Settings that never raise."""
    filters = ["sharpness", "qr", "ratio", "clip"]
    order = tuple(draw(st.permutations(filters))[: draw(st.integers(0, 4))])
    bounds = {
        "min_ratio": draw(st.sampled_from([0.0, 0.05, 0.2])),
        "max_ratio": draw(st.sampled_from([0.2, 1.0, float("inf")])),
    }
    return SelectionSettings(
        order=order,
        **(bounds if "ratio" in order else {}),
        on_fail=draw(st.dictionaries(st.sampled_from([*COLUMNS]), st.sampled_from(["image", "sample"]))),
        on_score_error=draw(st.sampled_from(["warn", "drop_row", "drop_sample"])),
        no_text=draw(st.sampled_from(["drop", "keep"])),
    )


def plainly(rows, words, scores, chosen):
    """The rules of selection in the words of its documentation: reason, measured and threshold of each dropped row."""
    left, dropped = set(rows), {}
    had_content = {row[0] for row in rows if row[2] != "metadata"}

    def content_of(sample):
        return [row for row in left if row[0] == sample and row[2] != "metadata"]

    def drop(row, *why):
        left.discard(row)
        dropped[row] = why

    for name in chosen.order:
        if name == "ratio":
            for sample in {row[0] for row in left}:
                content = content_of(sample)
                images = sum(row[2] == "image" for row in content)
                ratio = images / max(1, sum(words[row[:2]] for row in content if row[2] == "text"))
                bound = None
                if ratio < chosen.min_ratio:
                    bound = ("ratio_below", ratio, chosen.min_ratio)
                elif ratio > chosen.max_ratio:
                    bound = ("ratio_above", ratio, chosen.max_ratio)
                if content and bound:
                    for row in [row for row in left if row[0] == sample]:
                        drop(row, *bound)
            continue
        whole = set()
        for row in [row for row in left if row[2] == "image"]:
            score = scores.get(row[:2], {})
            value = score.get(COLUMNS[name])
            if value is not None:
                if failed := FAILS[name](value):
                    drop(row, failed[0], value, failed[1])
                    if chosen.on_fail.get(name) == "sample":
                        whole.add(row[0])
                continue
            error = (score.get("clip_error") if name == "clip" else None) or score.get("score_error") or "unscored: "
            code, policy = error.partition(":")[0], chosen.on_score_error
            if code == "no_text":
                policy = "warn" if chosen.no_text == "keep" else "drop_row"
            if policy != "warn":
                drop(row, code, None, None)
            if policy == "drop_sample":
                whole.add(row[0])
        whole |= {sample for sample in had_content if not content_of(sample)}
        for row in [row for row in left if row[0] in whole]:
            drop(row, "sample_dropped", None, None)
    return left, dropped


def table_of(scores):
    table = scores_of(scores)
    if "clip_score" not in table.column_names:
        table = table.append_column("clip_score", pa.nulls(table.num_rows, pa.float64()))
    return table


@given(shards(), choices())
def test_every_row_is_kept_or_in_the_ledger_as_the_rules_say(shard, chosen):
    rows, words, scores = shard
    table = rows_of(rows, words)
    selection = select(table, table_of(scores), chosen)
    check_balance("property", table.num_rows, selection.keep.true_count, selection.ledger)
    left, dropped = plainly(rows, words, scores, chosen)
    assert {row for row, keep in zip(rows, selection.keep.to_pylist(), strict=True) if keep} == left
    entries = selection.ledger.to_pylist()
    found = {
        (entry["sample_id"], entry["position"], entry["modality"]): (
            entry["reason"],
            entry["measured"],
            entry["threshold"],
        )
        for entry in entries
    }
    assert found == dropped
    for entry in entries:
        if entry["reason"] == "sample_dropped":
            assert entry["detail"].rpartition(": ")[2] in {reason for reason, *_ in dropped.values()}
    in_row_order = [row for row in rows if row in dropped]
    assert [(entry["sample_id"], entry["position"], entry["modality"]) for entry in entries] == in_row_order


@given(shards(), choices(), st.randoms(use_true_random=False))
def test_order_of_rows_and_scores_changes_no_decision(shard, chosen, random):
    rows, words, scores = shard
    table, score_table = rows_of(rows, words), table_of(scores)
    first = select(table, score_table, chosen)
    shuffle = list(range(table.num_rows))
    random.shuffle(shuffle)
    score_shuffle = list(range(score_table.num_rows))
    random.shuffle(score_shuffle)
    second = select(
        table.take(pa.array(shuffle, pa.int64())), score_table.take(pa.array(score_shuffle, pa.int64())), chosen
    )
    assert np.array_equal(
        np.array(first.keep.to_pylist(), dtype=bool)[shuffle], np.array(second.keep.to_pylist(), dtype=bool)
    )
    keys = [("sample_id", "ascending"), ("position", "ascending"), ("modality", "ascending")]
    assert first.ledger.sort_by(keys).equals(second.ledger.sort_by(keys))
    assert first.unscored == second.unscored
