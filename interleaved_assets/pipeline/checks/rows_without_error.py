"""Check that no row of a shard has an error."""

from typing import Final

from interleaved_assets.model.errors import IncompleteShard, MaterializeError, ScoreError
from interleaved_assets.pipeline.run.check import Basis, Severity, ShardCheck, Verdict
from interleaved_assets.pipeline.run.record import Record


def judge_errors(record: Record, basis: Basis) -> Verdict:
    """Check that no row has an error: otherwise warn, or fail above ``errors.max_error_rate``."""
    errors = basis.settings.errors
    count = sum(record.errors.values())
    rate = count / record.counts_in.rows if record.counts_in.rows else 0.0
    severity: Severity = "ERROR" if rate > errors.max_error_rate else "WARN"
    by_code = ", ".join(f"{number} {code}" for code, number in sorted(record.errors.items()))
    summary = f"{count} of {record.counts_in.rows} rows: {by_code}" if count else "no row has an error"
    figures: dict[str, float | int | str] = {
        "errors": count,
        "error_rate": rate,
        "policy": errors.on_materialize_error,
        **{f"errors_{code}": number for code, number in sorted(record.errors.items())},
    }
    return Verdict(count == 0, severity, summary, figures)


ROWS_WITHOUT_ERROR: Final = ShardCheck(
    "rows_without_error",
    "No row of the shard has an error: bytes that could not be read, an image that could not be measured or has no "
    "score. Counted by code. Warns; fails as an error where the share of such rows is above errors.max_error_rate, and "
    "where the shard is not materialized: under the policy 'error', if its tar is cut, and if more of its samples lost "
    "rows than publish.max_lost_samples allows.",
    judge_errors,
    (MaterializeError, ScoreError, IncompleteShard),
    counts=True,
)
