"""Check that no key of a row and no sample id is repeated in a shard."""

from typing import Final

from interleaved_assets.pipeline.run.check import Basis, ShardCheck, Verdict, lacking
from interleaved_assets.pipeline.run.counts import REPEATED_KEYS, REPEATED_SAMPLES
from interleaved_assets.pipeline.run.record import Record


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


KEYS_UNIQUE: Final = ShardCheck(
    "keys_unique",
    "No two rows of the shard have the same sample_id, position and modality, and no two samples the same id. Counted "
    "while the file was written.",
    judge_unique,
)
