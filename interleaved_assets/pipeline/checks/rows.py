"""Checks of rows: no row has an error or is lost, no key is repeated, and all rows were read back from the tar."""

from typing import Final

from interleaved_assets.model.errors import IncompleteShard, LedgerError, MaterializeError, ReadBackError, ScoreError
from interleaved_assets.pipeline.run.check import Basis, Severity, ShardCheck, Verdict, lacking
from interleaved_assets.pipeline.run.counted import (
    BYTES_READ,
    IMAGES_READ,
    REPEATED_KEYS,
    REPEATED_SAMPLES,
    SAMPLES_READ,
)
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


def judge_balance(record: Record, _: Basis) -> Verdict:
    rows_in, kept, dropped = record.counts_in.rows, record.counts_out.rows, sum(record.dropped.values())
    return Verdict(
        rows_in == kept + dropped,
        "ERROR",
        f"{rows_in} rows in = {kept} kept + {dropped} dropped with a reason",
        {"rows_in": rows_in, "rows_kept": kept, "rows_dropped": dropped},
    )


def judge_unique(record: Record, _: Basis) -> Verdict:
    """Check that no key (sample_id, position, modality) and no sample id is repeated."""
    if not {REPEATED_KEYS, REPEATED_SAMPLES} <= record.counted.keys():
        return lacking("repeated keys")
    keys, samples = record.counted[REPEATED_KEYS], record.counted[REPEATED_SAMPLES]
    rows = record.counts_out.rows
    if keys or samples:
        summary = f"{keys} of {rows} rows repeat the key of an earlier row, {samples} samples repeat an earlier id"
    else:
        summary = f"{rows} rows have different keys, {record.counts_out.samples} samples have different ids"
    return Verdict(not (keys or samples), "ERROR", summary, {REPEATED_KEYS: keys, REPEATED_SAMPLES: samples})


def judge_read_back(record: Record, _: Basis) -> Verdict:
    """Check that all samples and images of the tar were read back.

    Otherwise the stage fails, and there is no record.
    """
    if not {SAMPLES_READ, IMAGES_READ, BYTES_READ} <= record.counted.keys():
        return lacking("the counts of reading the tar back")
    samples, images = record.counted[SAMPLES_READ], record.counted[IMAGES_READ]
    expected = record.counts_out.samples
    return Verdict(
        samples == expected,
        "ERROR",
        f"webdataset reads {samples} of {expected} samples with {images} images, equal to those written",
        {"samples": expected, **{name: record.counted[name] for name in (SAMPLES_READ, IMAGES_READ, BYTES_READ)}},
    )


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
ROWS_ACCOUNTED_FOR: Final = ShardCheck(
    "rows_accounted_for",
    "Rows in = rows kept + rows in the ledger of drops: nothing is lost without a reason. A shard that breaks this is "
    "not materialized.",
    judge_balance,
    (LedgerError,),
)
KEYS_UNIQUE: Final = ShardCheck(
    "keys_unique",
    "No two rows of the shard have the same sample_id, position and modality, and no two samples the same id. Counted "
    "while the file was written.",
    judge_unique,
)
READS_BACK: Final = ShardCheck(
    "reads_back",
    "The tar, read back after it was written, gives a loader such as webdataset the samples of the filtered rows: the "
    "same keys in the same order, the same texts and bytes of images at the same positions, and in all the same bytes "
    "as were written. A shard that breaks this is not materialized.",
    judge_read_back,
    (ReadBackError,),
)
