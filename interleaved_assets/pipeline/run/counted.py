"""Counts of a shard's record besides its rows: their names, and the conclusions that checks draw from them."""

from collections.abc import Mapping
from typing import Final

from interleaved_assets.pipeline.run.record import Facts
from interleaved_assets.settings import PublishSettings

SAMPLES_WITH_CONTENT: Final = "samples_with_content"
CONTENT_BYTES: Final = "content_bytes"
UNREFERENCED: Final = "unreferenced_members"
UNREFERENCED_BYTES: Final = "unreferenced_bytes"
UNREFERENCED_IMAGES: Final = "unreferenced_images"
IMAGE_MEMBERS: Final = "image_members"
"""Number of images that a shard has, named by a document or not; for the stages after ``normalized``."""
REPEATED_KEYS: Final = "repeated_keys"
REPEATED_SAMPLES: Final = "repeated_samples"
UNEXPLAINED: Final = "rows_without_score_or_reason"
SAMPLES_READ: Final = "samples_read_back"
IMAGES_READ: Final = "images_read_back"
BYTES_READ: Final = "bytes_read_back"


def layout_problems(samples: int, counted: Mapping[str, int], bounds: PublishSettings) -> list[str]:
    """Return which bounds of a layout ``samples`` samples exceed, by the counts of ``publishable.ContentCounter``."""
    problems = []
    empty = samples - counted[SAMPLES_WITH_CONTENT]
    if samples and empty > bounds.max_empty_samples * samples:
        problems.append(
            f"{empty:,} of {samples:,} samples yield no text and no image, more than publish.max_empty_samples "
            f"{bounds.max_empty_samples:g}"
        )
    share = unreferenced_share(counted)
    if share > bounds.max_unreferenced_bytes:
        problems.append(
            f"members that no document names have {share:.1%} of the bytes, more than publish.max_unreferenced_bytes "
            f"{bounds.max_unreferenced_bytes:g}"
        )
    return problems


def unreferenced_share(counted: Mapping[str, int]) -> float:
    """Return bytes of members that no document names ÷ bytes of texts, images and these members, 0 to 1."""
    unreferenced = counted[UNREFERENCED_BYTES]
    return unreferenced / (unreferenced + counted[CONTENT_BYTES]) if unreferenced else 0.0


def counts_of_raw(rows: Facts) -> dict[str, int]:
    """Return the counts of the raw shard in the record of ``rows``, which a stage that stores rows passes on.

    ``filtered`` reads them from the record of the rows that it selects from.
    """
    members = {name: rows.counted.get(name, 0) for name in (UNREFERENCED, UNREFERENCED_IMAGES)}
    return {**members, IMAGE_MEMBERS: image_members(rows)}


def image_members(rows: Facts) -> int:
    """Return the number of images of the raw shard, by the record of ``normalized`` or ``rewritten``.

    Images count whether a document names them or not, and whether they were dropped or not.
    """
    return rows.counted.get(IMAGE_MEMBERS, rows.counts_in.images + rows.counted.get(UNREFERENCED_IMAGES, 0))
