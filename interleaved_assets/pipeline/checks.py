"""What must hold for a shard after a stage, judged from the stage's record alone."""

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

from interleaved_assets.model.errors import LedgerError, MaterializeError
from interleaved_assets.pipeline.record import Record
from interleaved_assets.settings import Settings


class Verdict(NamedTuple):
    """Whether a check passed for one shard, how bad it is if not, and the figures it rests on."""

    passed: bool
    severity: Literal["WARN", "ERROR"]
    summary: str
    figures: Mapping[str, float | int | str]


class ShardCheck(NamedTuple):
    """A check of one stage's output.

    ``judge`` looks at the record of a shard that went through. ``failed_by`` is the exception that says the check
    failed where the shard did not go through: its outputs were not written, and the check shows why.
    """

    name: str
    description: str
    judge: Callable[[Record, Settings], Verdict]
    failed_by: tuple[type[Exception], ...]


def judge_errors(record: Record, settings: Settings) -> Verdict:
    """Rows with a ``materialize_error``: none passes; some warn, or fail above ``errors.max_error_rate``."""
    count = sum(record.errors.values())
    rate = count / record.counts_in.rows if record.counts_in.rows else 0.0
    severity: Literal["WARN", "ERROR"] = "ERROR" if rate > settings.errors.max_error_rate else "WARN"
    by_code = ", ".join(f"{number} {code}" for code, number in sorted(record.errors.items()))
    summary = f"{count} of {record.counts_in.rows} rows: {by_code}" if count else "no row has an error"
    figures: dict[str, float | int | str] = {
        "errors": count,
        "error_rate": rate,
        "policy": settings.errors.on_materialize_error,
        **{f"errors_{code}": number for code, number in sorted(record.errors.items())},
    }
    return Verdict(count == 0, severity, summary, figures)


def judge_balance(record: Record, _: Settings) -> Verdict:
    """Rows in are rows kept plus rows in the ledger."""
    rows_in, kept, dropped = record.counts_in.rows, record.counts_out.rows, sum(record.dropped.values())
    return Verdict(
        rows_in == kept + dropped,
        "ERROR",
        f"{rows_in} rows in = {kept} kept + {dropped} dropped with a reason",
        {"rows_in": rows_in, "rows_kept": kept, "rows_dropped": dropped},
    )


def judge_scores(record: Record, _: Settings) -> Verdict:
    """The score table has one row for each image of the shard, scored or with the reason why not."""
    images, rows = record.counts_in.images, record.counts_out.rows
    errors = sum(record.errors.values())
    summary = f"{rows} rows for {images} images, {errors} of them with a reason instead of a score"
    return Verdict(images == rows, "ERROR", summary, {"images": images, "score_rows": rows, "without_score": errors})


EVERY_IMAGE_SCORED: Final = ShardCheck(
    "every_image_scored",
    "The score table has one row for each image, with its scores or with the reason why there are none.",
    judge_scores,
    (),
)
MATERIALIZATION_ERRORS: Final = ShardCheck(
    "materialization_errors",
    "No row of the shard has a materialization error; those that have one are counted by code.",
    judge_errors,
    (MaterializeError,),
)
ROWS_ACCOUNTED_FOR: Final = ShardCheck(
    "rows_accounted_for",
    "Rows in = rows kept + rows in the ledger. A shard that breaks this is not materialized.",
    judge_balance,
    (LedgerError,),
)
