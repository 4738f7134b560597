"""Checks of score tables: the table is complete, and all values are in range."""

from collections.abc import Mapping
from typing import Final

from interleaved_assets.model.errors import NOT_COMPARED
from interleaved_assets.pipeline.run.check import Basis, ShardCheck, Verdict, lacking
from interleaved_assets.pipeline.run.counted import IMAGE_MEMBERS, UNEXPLAINED
from interleaved_assets.pipeline.run.record import Extent, Record
from interleaved_assets.scoring.clip.columns import clip_ranges
from interleaved_assets.scoring.protocol.registry import Range, score_ranges


def judge_complete(record: Record, _: Basis) -> Verdict:
    """Check that each image has a row of scores or the reason why not, and that there is something to score."""
    if UNEXPLAINED not in record.counted:
        return lacking("rows without a score")
    images, rows, silent = record.counts_in.images, record.counts_out.rows, record.counted[UNEXPLAINED]
    reasons = sum(record.errors.values()) + sum(record.counted.get(code, 0) for code in NOT_COMPARED)
    summary = f"{rows} rows for {images} images, {reasons} of them with a reason instead of a score"
    if silent:
        summary += f", {silent} with neither"
    members = record.counted.get(IMAGE_MEMBERS, images)
    nothing = not images and members > 0
    if nothing:
        summary = f"nothing to score: all {members} images of the shard are named by no document, or dropped for errors"
    figures = {"images": images, "score_rows": rows, "without_score": reasons, UNEXPLAINED: silent}
    return Verdict(images == rows and not silent and not nothing, "ERROR", summary, figures | {IMAGE_MEMBERS: members})


def judge_documents_complete(record: Record, _: Basis) -> Verdict:
    """Check that each document and each text has a row of scores or the reason why not."""
    if UNEXPLAINED not in record.counted:
        return lacking("rows without a score")
    documents, texts, rows = record.counts_in.samples, record.counts_in.texts, record.counts_out.rows
    silent, reasons = record.counted[UNEXPLAINED], sum(record.errors.values())
    summary = f"{rows} rows for {documents} documents and {texts} texts, {reasons} of them with a reason instead"
    figures = {"documents": documents, "texts": texts, "score_rows": rows, "without_score": reasons}
    passed = rows == documents + texts and not silent
    return Verdict(passed, "ERROR", summary, figures | {UNEXPLAINED: silent})


def judge_image_ranges(record: Record, basis: Basis) -> Verdict:
    return _judge_ranges(record, score_ranges(basis.settings.scoring))


def judge_document_ranges(record: Record, basis: Basis) -> Verdict:
    return _judge_ranges(record, score_ranges(basis.settings.documents))


def judge_clip_ranges(record: Record, basis: Basis) -> Verdict:
    return _judge_ranges(record, clip_ranges(basis.settings.clip))


def _judge_ranges(record: Record, ranges: Mapping[str, Range]) -> Verdict:
    if not record.extents:
        return lacking("the range of the scores")
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
        problems.append(f"values from {extent.low:g} to {extent.high:g}, outside of {allowed}")
    return ", ".join(problems)


EVERY_IMAGE_SCORED: Final = ShardCheck(
    "every_image_scored",
    "The score table has one row for each image, with its scores or with the reason why there are none. Fails also "
    "where the shard has images, and none of them reached the score table.",
    judge_complete,
)
_DEFECT: Final = "Other values are no measurement but a defect of the scorer or its model."
IMAGE_SCORES_IN_RANGE: Final = ShardCheck(
    "scores_in_range",
    "Every score is a finite number within the range that its scorer declares: width, height and aspect ratio above 0, "
    f"sharpness 0 or more, QR area and NSFW from 0 to 1. {_DEFECT}",
    judge_image_ranges,
)
EVERY_DOCUMENT_SCORED: Final = ShardCheck(
    "every_document_scored",
    "The score table has one row for each document and one for each text, with its scores or with the reason why there "
    "are none.",
    judge_documents_complete,
)
DOCUMENT_SCORES_IN_RANGE: Final = ShardCheck(
    "scores_in_range",
    f"Every score is a finite number within the range that its scorer declares. {_DEFECT}",
    judge_document_ranges,
)
CLIP_SCORES_IN_RANGE: Final = ShardCheck(
    "scores_in_range",
    "Every score is a finite number within its range: cosine similarity from -1 to 1, heads behind a sigmoid from 0 to "
    f"1, embeddings of length 1. {_DEFECT}",
    judge_clip_ranges,
)
