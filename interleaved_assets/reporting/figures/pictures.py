"""Thumbnails of images that are shown: the stored ones, and others made from the images."""

import logging
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.parquet.reader import read_parquet_shard
from interleaved_assets.model.columns import BINARY_SIZE, REQUIRED_COLUMNS
from interleaved_assets.model.errors import ShardError, StorageError
from interleaved_assets.model.rows import filter_rows
from interleaved_assets.pipeline.run.raw_images import with_raw_images
from interleaved_assets.pipeline.run.record import record_of
from interleaved_assets.pipeline.stages.names import NORMALIZED
from interleaved_assets.reporting.figures.facts import ImageKey, has_key, image_keys, pictures_by_key, thumbnails_in
from interleaved_assets.scoring.images.thumbnail import THUMBNAIL_COLUMN, thumbnails
from interleaved_assets.scoring.protocol.scorer import ERROR_COLUMN
from interleaved_assets.settings import StorageSettings
from interleaved_assets.settings.shard_paths import ShardPaths

logger = logging.getLogger(__name__)

BATCH_BYTES: Final = 128 * 2**20
"""Most bytes of rows held at once while images are read."""


def shown_thumbnails(
    keys: Collection[ImageKey], scores: pa.Table | None, paths: ShardPaths, storage: StorageSettings
) -> dict[ImageKey, bytes]:
    """Return the thumbnails of these images: those in ``scores``, and for others new ones.

    None are made for images with an error, nor for a shard that was scored without thumbnails. If images can be read no
    more, only the stored ones are returned.
    """
    if scores is None or THUMBNAIL_COLUMN not in scores.column_names:
        return {}
    scores = scores.filter(has_key(scores, set(keys)))
    found = thumbnails_in(scores)
    missing = scores.filter(pc.and_(scores[THUMBNAIL_COLUMN].is_null(), scores[ERROR_COLUMN].is_null()))
    if not missing.num_rows:
        return found
    lacking = set(image_keys(missing))
    try:
        for images in _images(lacking, paths, storage):
            found |= pictures_by_key(images, thumbnails([content.as_buffer() for content in images["binary_content"]]))
    except (StorageError, ShardError) as error:
        logger.warning("shard %s: %d pictures are not drawn: %s", paths.key, len(lacking - found.keys()), error)
    return found


def with_images(
    tables: Iterable[pa.Table], stage: str, paths: ShardPaths, storage: StorageSettings
) -> Iterable[pa.Table]:
    """Return rows of ``stage`` with the bytes of their images, which they may only name in the raw shard."""
    record = record_of(paths, stage)
    if record is None or not record.names_images:
        return tables
    return with_raw_images(tables, paths.key, record.source, storage, BATCH_BYTES, few=True)


def _images(keys: set[ImageKey], paths: ShardPaths, storage: StorageSettings) -> Iterator[pa.Table]:
    """Yield the rows of these images with their bytes."""
    columns = (*REQUIRED_COLUMNS, "binary_content", "source_ref", BINARY_SIZE)
    tables = read_parquet_shard(
        paths.output(NORMALIZED), columns=columns, max_batch_bytes=BATCH_BYTES, storage_options=paths.options
    )
    chosen = (
        filter_rows(table, pc.and_(pc.equal(table["modality"], "image"), has_key(table, keys))) for table in tables
    )
    for table in with_images((table for table in chosen if table.num_rows), NORMALIZED, paths, storage):
        yield filter_rows(table, table["binary_content"].is_valid())
