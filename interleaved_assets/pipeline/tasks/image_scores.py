"""The work of image_scores: measure each image of a shard."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.rows.batches import prefetch
from interleaved_assets.model.rows import filter_rows
from interleaved_assets.pipeline.run.counted import IMAGE_MEMBERS, image_members
from interleaved_assets.pipeline.run.counts import RowCounter, write_scores
from interleaved_assets.pipeline.run.stage import ShardTask, Work
from interleaved_assets.pipeline.stages.names import IMAGE_SCORES as NAME
from interleaved_assets.pipeline.stages.names import NORMALIZED
from interleaved_assets.scoring.protocol.registry import ERROR_COLUMN, score_groups
from interleaved_assets.scoring.protocol.schema import scores_schema
from interleaved_assets.scoring.protocol.score import prepare_scorers, score_images
from interleaved_assets.settings import Settings

_BATCH_BYTES: Final = 16 * 2**20
"""Bytes of a batch: smaller than a shard, so that images are scored while others are read."""
_IMAGE_COLUMNS: Final = ("sample_id", "position", "modality", "binary_content", "materialize_error")


def prepare(settings: Settings) -> None:
    """Raise InterleavedError if a package or a model is missing."""
    prepare_scorers(settings.scoring)


def score(shard: ShardTask) -> Work:
    """Decode and measure each image once, and write ``image_scores/<key>.parquet`` in the order of the images."""
    settings = shard.settings
    seen = RowCounter()
    scored: list[pa.Table] = [scores_schema(settings.scoring).empty_table()]
    for table in prefetch(shard.rows_of(NORMALIZED, _IMAGE_COLUMNS, _BATCH_BYTES)):
        images = filter_rows(table, pc.equal(table["modality"], "image"))
        seen.add(images)
        scored.append(score_images(images, settings.scoring))
    scores = pa.concat_tables(scored)
    groups = score_groups(settings.scoring)
    work = write_scores(scores, shard.paths.output(NAME), shard.options, ERROR_COLUMN, groups)
    return work.model_copy(
        update={
            "counts_in": seen.counts,
            "counts_out": seen.counts.model_copy(update={"rows": scores.num_rows}),
            "counted": {**work.counted, IMAGE_MEMBERS: image_members(shard.read[NORMALIZED])},
        }
    )
