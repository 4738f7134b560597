"""The work of image_scores: measure each image of a shard."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.rows.batches import prefetch
from interleaved_assets.model.rows import filter_rows
from interleaved_assets.pipeline.run.counted import IMAGE_MEMBERS, UNEXPLAINED, image_members
from interleaved_assets.pipeline.run.counts import RowCounter, column_facts, count_errors, extents, unexplained
from interleaved_assets.pipeline.run.record import OutputFile
from interleaved_assets.pipeline.run.stage import ShardTask, Work
from interleaved_assets.pipeline.stages.names import IMAGE_SCORES as NAME
from interleaved_assets.pipeline.stages.names import NORMALIZED
from interleaved_assets.scoring.protocol.registry import ERROR_COLUMN, score_groups
from interleaved_assets.scoring.protocol.schema import scores_schema
from interleaved_assets.scoring.protocol.score import score_images

_BATCH_BYTES: Final = 16 * 2**20
"""Bytes of a batch: smaller than a shard, so that images are scored while others are read."""
_IMAGE_COLUMNS: Final = ("sample_id", "position", "modality", "binary_content", "materialize_error")


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
    with parquet_shard(shard.paths.output(NAME), scores.schema, storage_options=shard.options) as out:
        out.write(scores)
    return Work(
        outputs={"rows": OutputFile.of(out)},
        counts_in=seen.counts,
        counts_out=seen.counts.model_copy(update={"rows": scores.num_rows}),
        errors=dict(count_errors(scores[ERROR_COLUMN])),
        **column_facts(out.schema),
        extents=extents(scores),
        counted={
            UNEXPLAINED: unexplained(scores, ERROR_COLUMN, score_groups(settings.scoring)),
            IMAGE_MEMBERS: image_members(shard.read[NORMALIZED]),
        },
    )
