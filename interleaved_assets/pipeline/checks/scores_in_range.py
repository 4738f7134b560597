"""Check that all scores of a shard are within their ranges."""

from typing import Final

from interleaved_assets.model.digits import measured
from interleaved_assets.pipeline.run.check import Basis, ShardCheck, Verdict, lacking
from interleaved_assets.pipeline.run.record import Extent, Record
from interleaved_assets.scoring.protocol.scorer import Range


def judge_ranges(record: Record, basis: Basis) -> Verdict:
    """Check that every value of a score is finite and within the range that the stage declares."""
    if not record.extents:
        return lacking("the range of the scores")
    ranges = basis.stage.ranges(basis.settings)
    problems = [
        f"{name}: {problem}"
        for name, extent in record.extents.items()
        if (problem := _outside(extent, ranges.get(name, Range())))
    ]
    figures: dict[str, float | int | str] = {
        "columns_out_of_range": len(problems),
        "not_finite": sum(extent.not_finite for extent in record.extents.values()),
    }
    for name, extent in record.extents.items():
        if extent.low is not None and extent.high is not None:
            figures |= {f"{name}_min": extent.low, f"{name}_max": extent.high}
    summary = "; ".join(problems) or f"{len(record.extents)} columns of scores within their ranges"
    return Verdict(not problems, "ERROR", summary, figures)


def _outside(extent: Extent, allowed: Range) -> str:
    problems = []
    if extent.not_finite:
        problems.append(f"{extent.not_finite} of {extent.values} values are not finite")
    if extent.low is not None and extent.high is not None and not allowed.holds(extent.low, extent.high):
        low, high = (measured(value, *allowed, digits=6) for value in (extent.low, extent.high))
        problems.append(f"values from {low} to {high}, outside of {allowed}")
    return ", ".join(problems)


SCORES_IN_RANGE: Final = ShardCheck(
    "scores_in_range",
    "Every score is a finite number within the range that its scorer declares. Other values are no measurement but a "
    "defect of the scorer or its model.",
    judge_ranges,
)
