"""The ledger: reasons of dropped rows, and the balance of row counts."""

import pyarrow as pa
import pytest

from interleaved_assets.model.errors import LedgerError
from interleaved_assets.model.ledger import (
    LEDGER_SCHEMA,
    check_balance,
    drop_reasons,
    empty_ledger,
    error_ledger,
    ledger_of,
)


def rows(*keys: tuple[str, int, str], errors: list[str | None] | None = None) -> pa.Table:
    names, positions, kinds = zip(*keys, strict=True)
    table = pa.table({"sample_id": names, "position": pa.array(positions, pa.int32()), "modality": kinds})
    return table if errors is None else table.append_column("materialize_error", pa.array(errors, pa.string()))


KEYS = [("a", -1, "metadata"), ("a", 0, "image"), ("b", 0, "image")]


def test_ledger_has_reason_measured_value_and_threshold() -> None:
    ledger = ledger_of(
        rows(*KEYS), "filtered", ["sample_dropped", "blur_below", "aspect_above"], measured=[None, 3, 9.5]
    )
    assert ledger.schema == LEDGER_SCHEMA
    assert ledger.to_pylist()[1] == {
        "sample_id": "a",
        "position": 0,
        "modality": "image",
        "stage": "filtered",
        "reason": "blur_below",
        "measured": 3.0,
        "threshold": None,
        "detail": None,
    }
    assert empty_ledger().schema == LEDGER_SCHEMA
    assert empty_ledger().num_rows == 0


def test_a_row_dropped_with_its_sample_names_the_cause() -> None:
    table = rows(*KEYS, errors=[None, "short_read: 1 of 2", "missing_member: b.png"])
    ledger = error_ledger(table, "normalized").to_pylist()
    assert [row["reason"] for row in ledger] == ["sample_dropped", "short_read", "missing_member"]
    assert ledger[0]["detail"] == "sample dropped for short_read: 1 of 2"
    assert ledger[1]["detail"] == "short_read: 1 of 2"
    assert {row["stage"] for row in ledger} == {"normalized"}


def test_unbalanced_row_counts_raise() -> None:
    ledger = ledger_of(rows(*KEYS), "s", ["x"] * 3)
    check_balance("s", 10, 7, ledger)
    with pytest.raises(LedgerError, match="s: 10 rows in, 6 kept and 3 in the ledger: 1 unaccounted for"):
        check_balance("s", 10, 6, ledger)
    with pytest.raises(LedgerError, match="-1 unaccounted for"):
        check_balance("s", 10, 8, ledger)
    with pytest.raises(LedgerError, match="a row is in the ledger more than once"):
        check_balance("s", 10, 4, pa.concat_tables([ledger, ledger]))


def test_reasons_come_most_frequent_first_then_by_name() -> None:
    ledger = ledger_of(rows(*KEYS, ("c", 0, "text"), ("c", 1, "text")), "s", ["y", "x", "z", "x", "z"])
    assert list(drop_reasons(ledger).items()) == [("x", 2), ("z", 2), ("y", 1)]
    assert drop_reasons(empty_ledger()) == {}
