"""The error policy: kept rows, dropped rows, and the ledger."""

import logging

import pyarrow as pa
import pytest

from interleaved_assets.io.rows.policy import apply_error_policy, check_policy
from interleaved_assets.model.errors import MaterializeError, OptionError
from interleaved_assets.model.ledger import check_balance, empty_ledger
from interleaved_assets.model.source_ref import build_source_ref
from interleaved_assets_tests.io.row_tables import rows_table

ROWS = [
    {"sample_id": "good", "position": 0, "binary_content": b"1"},
    {"sample_id": "bad", "position": -1, "modality": "metadata"},
    {
        "sample_id": "bad",
        "position": 0,
        "source_ref": build_source_ref("/raw/s.tar", "bad.tiff", 1, 2),
        "materialize_error": "short_read: 1 of 2 bytes",
    },
    {"sample_id": "bad", "position": 1, "modality": "text", "text_content": "words"},
    {"sample_id": "worse", "position": 3, "materialize_error": "something of another tool"},
]


def apply(policy: str, rows: list = ROWS) -> tuple[pa.Table, list[dict]]:
    table = rows_table(rows)
    kept, ledger = apply_error_policy(table, policy, shard="s.tar", stage="write")
    assert kept.schema == table.schema
    check_balance("write", table.num_rows, kept.num_rows, ledger)
    return kept, ledger.to_pylist()


def test_error_names_shard_sample_member_and_code() -> None:
    with pytest.raises(MaterializeError) as caught:
        apply("error")
    error = caught.value
    assert (error.shard, error.sample_id, error.position) == ("s.tar", "bad", 0)
    assert (error.member, error.code) == ("bad.tiff", "short_read")
    assert str(error).startswith("s.tar: sample 'bad', position 0, member 'bad.tiff': short_read: 1 of 2 bytes. Fix")


@pytest.mark.parametrize(
    ("source_ref", "member"),
    [(None, None), (build_source_ref("/a.png"), "/a.png"), ("no json", "no json")],
)
def test_error_names_member_path_or_raw_source_ref(source_ref: str | None, member: str | None) -> None:
    row = {"sample_id": "a", "source_ref": source_ref, "materialize_error": "invalid_source_ref: x"}
    with pytest.raises(MaterializeError) as caught:
        apply("error", [row])
    assert caught.value.member == member


def test_warn_keeps_all_rows_and_logs_error_counts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        kept, ledger = apply("warn")
    assert kept == rows_table(ROWS)
    assert ledger == []
    assert caplog.messages == ["s.tar: write: rows with errors are kept: 1 × short_read, 1 × unknown"]


def test_drop_row_drops_the_bad_rows_alone() -> None:
    kept, ledger = apply("drop_row")
    assert kept["sample_id"].to_pylist() == ["good", "bad", "bad"]
    assert kept["position"].to_pylist() == [0, -1, 1]
    assert [(row["sample_id"], row["position"], row["reason"], row["detail"]) for row in ledger] == [
        ("bad", 0, "short_read", "short_read: 1 of 2 bytes"),
        ("worse", 3, "unknown", "something of another tool"),
    ]
    assert {row["stage"] for row in ledger} == {"write"}


def test_drop_sample_drops_all_rows_of_their_samples() -> None:
    kept, ledger = apply("drop_sample")
    assert kept["sample_id"].to_pylist() == ["good"]
    assert [(row["sample_id"], row["position"], row["modality"], row["reason"]) for row in ledger] == [
        ("bad", -1, "metadata", "sample_dropped"),
        ("bad", 0, "image", "short_read"),
        ("bad", 1, "text", "sample_dropped"),
        ("worse", 3, "image", "unknown"),
    ]
    assert ledger[0]["detail"] == "sample dropped for short_read: 1 of 2 bytes"


@pytest.mark.parametrize("policy", ["error", "warn", "drop_row", "drop_sample"])
def test_what_is_not_in_the_source_goes_to_the_ledger_alone_and_warn_keeps_images(policy: str) -> None:
    absent = "image_not_in_archive: https://a.example/b.png"
    removed = "boilerplate: 10 characters"
    rows = [
        {"sample_id": "a", "position": 0, "modality": "text", "text_content": "words"},
        {"sample_id": "a", "position": 1, "materialize_error": absent},
        {"sample_id": "a", "position": 2, "modality": "text", "materialize_error": removed},
    ]
    kept, ledger = apply(policy, rows)
    of_image = [(1, "image", "image_not_in_archive", absent)]
    assert kept["position"].to_pylist() == ([0, 1] if policy == "warn" else [0])
    assert [(row["position"], row["modality"], row["reason"], row["detail"]) for row in ledger] == [
        *([] if policy == "warn" else of_image),
        (2, "text", "boilerplate", removed),
    ]


def test_errors_beside_what_is_not_in_the_source_follow_the_policy() -> None:
    rows = [*ROWS, {"sample_id": "good", "position": 1, "materialize_error": "image_not_in_store: b.png"}]
    with pytest.raises(MaterializeError, match="short_read"):
        apply("error", rows)
    kept, ledger = apply("warn", rows)
    assert kept["sample_id"].to_pylist() == [row["sample_id"] for row in rows]
    assert ledger == []
    kept, ledger = apply("drop_sample", rows)
    assert kept["sample_id"].to_pylist() == ["good"]
    assert sorted(row["reason"] for row in ledger) == [
        "image_not_in_store", "sample_dropped", "sample_dropped", "short_read", "unknown",
    ]  # fmt: skip


@pytest.mark.parametrize("policy", ["error", "warn", "drop_row", "drop_sample"])
def test_tables_without_errors_are_returned_unchanged(policy: str) -> None:
    table = rows_table(ROWS[:2])
    for same in (table, table.drop_columns(["materialize_error"]), table.slice(0, 0)):
        kept, ledger = apply_error_policy(same, policy, shard="s", stage="write")
        assert kept is same
        assert ledger == empty_ledger()


def test_an_unknown_policy_is_refused() -> None:
    message = "on_materialize_error must be one of error, warn, drop_row, drop_sample, got 'skip'"
    with pytest.raises(OptionError, match=message):
        check_policy("skip")
    with pytest.raises(OptionError, match=message):
        apply_error_policy(rows_table([]), "skip", shard="s", stage="write")
