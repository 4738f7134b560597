"""Documents from stored rows, scores and ledgers."""

import json
import sys
from typing import Any

import pyarrow as pa
import pytest

from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets.pipeline.lineage.contents import RowKey
from interleaved_assets.reporting.documents.document import Drop, ShownDocument, build_documents, sortable_scores
from interleaved_assets.reporting.figures.facts import ImageKey
from interleaved_assets.reporting.figures.measures import measures_of
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets_tests.reporting.shards import ledger, scores

MEASURES = measures_of(SelectionSettings())
BLUR = ("a", 2, "image", "sharpness_below", 41.25, 100.0, None)


def rows(*values: tuple[str, int, str, str | None]) -> pa.Table:
    table = pa.Table.from_pylist(
        [dict(zip(("sample_id", "position", "modality", "text_content"), row, strict=True)) for row in values],
        schema=INTERLEAVED_SCHEMA,
    )
    tags = [["x", "y"] if modality == "metadata" else None for _, _, modality, _ in values]
    return table.append_column("tags", pa.array(tags, pa.list_(pa.string()))).append_column(
        "nothing", pa.nulls(len(values), pa.string())
    )


A = rows(("a", -1, "metadata", None), ("a", 0, "text", "one"), ("a", 1, "image", None), ("a", 2, "image", None))


def document(table: pa.Table, **stored: Any) -> ShownDocument:
    [found] = build_documents(["a"], table, {ImageKey("a", 1): b"picture"}, MEASURES, **stored)
    return found


def test_a_score_that_missed_its_bound_is_not_shown_as_the_bound() -> None:
    found = document(A, scores=scores([("a", 1, 100.04, 0.0), ("a", 2, 99.96, 0.0)]))
    assert [item.scores[0].said for item in found.items[1:]] == ["100.04", "99.96"]
    assert found.items[2].scores[0].rule.endswith("99.96, keep ≥ 100")


def test_texts_and_images_in_order_with_scores_and_drops() -> None:
    found = document(A, scores=scores([("a", 1, 640.0, 0.0), ("a", 2, 41.25, 0.0)]), ledger=ledger([BLUR]))
    assert [(item.position, item.modality, item.text, item.picture) for item in found.items] == [
        (0, "text", "one", None),
        (1, "image", None, b"picture"),
        (2, "image", None, None),
    ]
    assert [(score.label, score.value, score.passes) for score in found.items[2].scores] == [
        ("sharpness", 41.25, False),
        ("QR area", 0.0, True),
    ]
    assert found.items[1].size == "300×200"
    assert found.items[2].drop == Drop("filtered", "sharpness_below", 41.25, "keep ≥ 100", "", 100.0)
    assert found.fields == {"tags": ["x", "y"]}
    assert dict(found.reasons) == {"sharpness_below": 1}
    assert not found.is_gone
    assert found.extremes() == {"sharpness": (41.25, 640.0), "qr": (0.0, 0.0)}
    assert sortable_scores([found]) == {"sharpness": "sharpness", "qr": "QR area"}


@pytest.mark.parametrize(
    ("reason", "threshold", "rule"),
    [("qr_above", 0.05, "keep < 0.05"), ("aspect_above", 3.0, "keep ≤ 3"), ("clip_below", 0.15, "keep ≥ 0.15")],
)
def test_the_rule_is_that_of_the_bound(reason: str, threshold: float, rule: str) -> None:
    found = document(A, ledger=ledger([("a", 1, "image", reason, 1.0, threshold, None)]))
    assert found.items[1].drop is not None
    assert found.items[1].drop.rule == rule


def test_a_document_dropped_as_a_whole_has_one_reason() -> None:
    drops = [
        ("a", position, kind, "ratio_above", 2.0, 0.5, None)
        for position, kind in ((-1, "metadata"), (0, "text"), (1, "image"), (2, "image"))
    ]
    found = document(A, ledger=ledger(drops))
    assert found.is_gone
    assert found.common_drop == Drop("filtered", "ratio_above", 2.0, "keep ≤ 0.5", "", 0.5)
    assert found.reasons == {"ratio_above": 4}


def test_rows_that_no_output_has_stand_in_their_place() -> None:
    lost = ledger([("a", 1, "image", "missing_member", None, None, "missing_member: a.1.png")], stage="normalized")
    found = document(A.filter(pa.array([True, True, False, True])), ledger=lost)
    assert [(item.position, item.drop and item.drop.reason) for item in found.items] == [
        (0, None),
        (1, "missing_member"),
        (2, None),
    ]
    [gone] = build_documents(["b"], A.slice(0, 0), {}, ledger=ledger([("b", 0, *BLUR[2:])]))
    assert gone.is_gone


def test_texts_that_a_stage_before_the_selection_dropped_are_shown_from_the_rows_that_it_read() -> None:
    short = ledger([("b", 0, "text", "short", 12.0, 60.0, None), ("b", 1, *BLUR[2:])], stage="tidied")
    [shown] = build_documents(["b"], A.slice(0, 0), {}, ledger=short, contents={RowKey("b", 0, "text"): "a short text"})
    assert [(item.modality, item.text) for item in shown.items] == [("text", "a short text"), ("image", None)]


def test_errors_of_kept_images_and_the_nearest_text() -> None:
    table = scores([("a", 1, None, None), ("a", 2, 640.0, 0.0)])
    table = table.append_column("clip_text_position", pa.array([None, 0], pa.int32()))
    found = document(A, scores=table)
    assert found.items[1].error == "undecodable_image: 0 bytes"
    assert (found.items[2].error, found.items[2].nearest) == (None, "one")


def test_scores_of_documents_and_fields_that_json_has_not() -> None:
    ratios = pa.table({"sample_id": ["b", "a"], "ratio": [9.0, 0.25]})
    table = A.append_column("day", pa.array([0, None, None, None], pa.date32()))
    found = document(table, sample_scores=ratios)
    assert [(score.name, score.value, score.passes) for score in found.scores] == [("ratio", 0.25, True)]
    assert found.fields["day"] == "1970-01-01"
    long = ShownDocument("a", (), {"text": "x" * 9000})
    assert long.fields_text.endswith("… (9,015 characters)")


def test_fields_that_python_has_no_value_for_are_shown_as_text() -> None:
    # a date beyond the year 9999, as files of others have them
    table = A.append_column("seen", pa.array([2**62, None, None, None], pa.timestamp("us")))
    assert document(table).fields == {"tags": ["x", "y"], "seen": f"<value out of range: {2**62}>"}


def test_an_infinite_score_is_a_number_that_json_has() -> None:
    found = document(A, scores=scores([("a", 1, float("inf"), 0.0), ("a", 2, float("-inf"), 0.0)]))
    assert json.loads(json.dumps(found.extremes(), allow_nan=False))["sharpness"] == [
        -sys.float_info.max,
        sys.float_info.max,
    ]
