"""Check that the table of scores has each image of a shard."""

from typing import Final

from interleaved_assets.model.errors import NOT_COMPARED
from interleaved_assets.pipeline.run.check import Basis, ShardCheck, Verdict, lacking
from interleaved_assets.pipeline.run.counts import IMAGE_MEMBERS, UNEXPLAINED
from interleaved_assets.pipeline.run.record import Record


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


EVERY_IMAGE_SCORED: Final = ShardCheck(
    "every_image_scored",
    "The score table has one row for each image, with its scores or with the reason why there are none. Fails also "
    "where the shard has images, and none of them reached the score table.",
    judge_complete,
)
