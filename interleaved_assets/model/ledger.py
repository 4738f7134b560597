"""The ledger: one row for each row that a stage dropped, with the reason, the measured value and the threshold."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.model.columns import ROW_KEY
from interleaved_assets.model.errors import LedgerError, error_code

LEDGER_SCHEMA: Final = pa.schema(
    [
        pa.field("sample_id", pa.string(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("modality", pa.string(), nullable=False),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("measured", pa.float64()),
        pa.field("threshold", pa.float64()),
        pa.field("detail", pa.string()),
    ]
)
"""``reason`` is ``<filter>_below``, ``<filter>_above``, ``sample_dropped`` or an error code; ``detail`` is text."""

SAMPLE_DROPPED: Final = "sample_dropped"


def empty_ledger() -> pa.Table:
    """Return a ledger without rows."""
    return LEDGER_SCHEMA.empty_table()


def error_ledger(rows: pa.Table, stage: str) -> pa.Table:
    """Return the ledger of rows dropped for their ``materialize_error``; a row without one was dropped with its sample.

    ``rows`` has ``sample_id``, ``position``, ``modality`` and ``materialize_error``. The detail of a row that was
    dropped with its sample is the sample's first error.
    """
    errors = rows["materialize_error"].to_pylist()
    samples = rows["sample_id"].to_pylist()
    cause: dict[str, str] = {}
    for sample_id, error in zip(samples, errors, strict=True):
        if error is not None:
            cause.setdefault(sample_id, error)
    reasons = [SAMPLE_DROPPED if error is None else error_code(error) for error in errors]
    details = [
        f"sample dropped for {cause[sample_id]}" if error is None else error
        for sample_id, error in zip(samples, errors, strict=True)
    ]
    return ledger_of(rows, stage, reasons, details=details)


def ledger_of(
    rows: pa.Table,
    stage: str,
    reasons: Sequence[str] | pa.Array,
    *,
    measured: Sequence[float | None] | pa.Array | None = None,
    threshold: Sequence[float | None] | pa.Array | None = None,
    details: Sequence[str | None] | pa.Array | None = None,
) -> pa.Table:
    """Build a ledger of ``rows`` (``sample_id``, ``position``, ``modality``); other arguments are in their order."""
    count = rows.num_rows
    return pa.table(
        {
            "sample_id": rows["sample_id"],
            "position": rows["position"],
            "modality": rows["modality"],
            "stage": pa.repeat(pa.scalar(stage, pa.string()), count),
            "reason": pa.array(reasons, pa.string()),
            "measured": pa.nulls(count, pa.float64()) if measured is None else pa.array(measured, pa.float64()),
            "threshold": pa.nulls(count, pa.float64()) if threshold is None else pa.array(threshold, pa.float64()),
            "detail": pa.nulls(count, pa.string()) if details is None else pa.array(details, pa.string()),
        },
        schema=LEDGER_SCHEMA,
    )


def check_balance(stage: str, rows_in: int, rows_kept: int, ledger: pa.Table) -> None:
    """Check that ``rows in = rows kept + rows in the ledger``.

    Raises:
        LedgerError: the counts do not add up, or the ledger lists a row twice.
    """
    if rows_in != rows_kept + ledger.num_rows:
        raise LedgerError(
            f"{stage}: {rows_in} rows in, {rows_kept} kept and {ledger.num_rows} in the ledger: "
            f"{rows_in - rows_kept - ledger.num_rows} unaccounted for"
        )
    keys = ledger.select(ROW_KEY)
    if keys.num_rows != keys.group_by(keys.column_names).aggregate([]).num_rows:
        raise LedgerError(f"{stage}: a row is in the ledger more than once")


def drop_reasons(ledger: pa.Table) -> dict[str, int]:
    """Count the rows of ``ledger`` by reason, most frequent first."""
    counts = pc.value_counts(ledger["reason"]).to_pylist()
    return {row["values"]: row["counts"] for row in sorted(counts, key=lambda row: (-row["counts"], row["values"]))}
