"""Contents of the example rows of a report: thumbnails and texts, read for these rows alone."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from interleaved_assets.model.errors import InterleavedError
from interleaved_assets.pipeline.lineage.contents import RowKey, dropped_contents
from interleaved_assets.pipeline.run.threads import TABLE_READERS, found_or_error
from interleaved_assets.pipeline.stages.names import IMAGE_SCORES
from interleaved_assets.pipeline.stages.outputs import find_scores_of
from interleaved_assets.reporting.dataset.aggregate import Example
from interleaved_assets.reporting.figures.facts import ImageKey
from interleaved_assets.reporting.figures.pictures import shown_thumbnails
from interleaved_assets.settings import StorageSettings


class Held(NamedTuple):
    """The content of a dropped row."""

    thumbnail: bytes | None = None
    text: str | None = None


def held_by(examples: Iterable[Example], storage: StorageSettings) -> dict[Example, Held]:
    """Return the content of each of ``examples``, as far as it is stored; none for a shard that cannot be read."""
    by_shard: dict[str, list[Example]] = {}
    for example in examples:
        by_shard.setdefault(example.shard, []).append(example)

    found: dict[Example, Held] = {}
    work = partial(_held, by_shard, storage)
    for _, held in found_or_error(work, by_shard, threads=TABLE_READERS):
        found |= {} if isinstance(held, InterleavedError) else held
    return found


def _held(by_shard: Mapping[str, list[Example]], storage: StorageSettings, shard: str) -> dict[Example, Held]:
    examples, paths = by_shard[shard], storage.shard(shard)
    rows = pa.table({name: [getattr(row, name) for row in examples] for name in ("stage", *RowKey._fields)})
    texts = dropped_contents(rows, paths)
    images = [ImageKey(row.sample_id, row.position) for row in examples if row.modality == "image"]
    thumbnails: dict[ImageKey, bytes] = {}
    if images:
        scores = find_scores_of(IMAGE_SCORES, paths, thumbnails=True)
        thumbnails = shown_thumbnails(images, scores, paths, storage)
    return {
        row: Held(
            thumbnails.get(ImageKey(row.sample_id, row.position)) if row.modality == "image" else None,
            texts.get(RowKey(row.sample_id, row.position, row.modality)),
        )
        for row in examples
    }
