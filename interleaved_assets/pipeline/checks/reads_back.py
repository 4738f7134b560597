"""Check that the final tar, read back, has the samples that were written."""

from typing import Final

from interleaved_assets.model.errors import ReadBackError
from interleaved_assets.pipeline.run.check import Basis, ShardCheck, Verdict, lacking
from interleaved_assets.pipeline.run.counts import BYTES_READ, IMAGES_READ, SAMPLES_READ
from interleaved_assets.pipeline.run.record import Record


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


READS_BACK: Final = ShardCheck(
    "reads_back",
    "The tar, read back after it was written, gives a loader such as webdataset the samples of the filtered rows: the "
    "same keys in the same order, the same texts and bytes of images at the same positions, and in all the same bytes "
    "as were written. A shard that breaks this is not materialized.",
    judge_read_back,
    (ReadBackError,),
)
