"""Check of a shard's layout: its samples have content, and its documents name its members."""

from typing import Final

from interleaved_assets.model.digits import percent
from interleaved_assets.model.errors import UnexpectedLayout
from interleaved_assets.pipeline.run.check import Basis, ShardCheck, Verdict, lacking
from interleaved_assets.pipeline.run.counts import SAMPLES_WITH_CONTENT, UNREFERENCED_IMAGES
from interleaved_assets.pipeline.run.publishable import layout_problems, unreferenced_share
from interleaved_assets.pipeline.run.record import Record


def judge_layout(record: Record, basis: Basis) -> Verdict:
    """Check samples without content, and bytes that no document names, against the bounds of ``[publish]``."""
    counted, samples = record.counted, record.counts_in.samples
    if SAMPLES_WITH_CONTENT not in counted:
        return lacking("samples with content")
    problems = layout_problems(samples, counted, basis.settings.publish)
    share, images = unreferenced_share(counted), counted[UNREFERENCED_IMAGES]
    summary = (
        f"{counted[SAMPLES_WITH_CONTENT]} of {samples} samples have a text or an image; members that no document names "
        f"have {percent(share)} of the bytes, {images} of them are images"
    )
    figures = {
        "samples": samples,
        SAMPLES_WITH_CONTENT: counted[SAMPLES_WITH_CONTENT],
        "unreferenced_share": share,
        UNREFERENCED_IMAGES: images,
    }
    return Verdict(not problems, "ERROR", "; ".join(problems) or summary, figures)


LAYOUT: Final = ShardCheck(
    "layout_as_expected",
    "The shard has the layout that [reading] describes: the share of samples without a text or an image is at most "
    "publish.max_empty_samples, and members that no document names have at most publish.max_unreferenced_bytes of the "
    "bytes. A shard that breaks this is not materialized.",
    judge_layout,
    (UnexpectedLayout,),
)
