"""The stored outputs of a shard, read again: scores and ledgers."""

from collections.abc import Collection, Sequence

import pyarrow as pa

from interleaved_assets.io.parquet.source import open_parquet
from interleaved_assets.model.errors import ShardError, StorageError
from interleaved_assets.model.ledger import empty_ledger
from interleaved_assets.pipeline.stages.names import DOCUMENT_SCORES, IMAGE_SCORES
from interleaved_assets.scoring.images.thumbnail import THUMBNAIL_COLUMN
from interleaved_assets.scoring.scores.clip import EMBEDDING
from interleaved_assets.selection.positions import join_scores
from interleaved_assets.settings.shard_paths import ShardPaths


def read_scores(paths: ShardPaths, stages: Collection[str] = ()) -> pa.Table:
    """Return the stored scores of a shard's images, one row per image.

    The scores of others of ``stages``, such as CLIP's, are joined where they exist. Thumbnails and embeddings are left
    out.
    """
    scores = _stored(find_scores_of(IMAGE_SCORES, paths), IMAGE_SCORES, paths)
    for stage in stages:
        if stage != IMAGE_SCORES and (added := find_scores_of(stage, paths)) is not None:
            scores = join_scores(scores, added)
    return scores


def read_document_scores(paths: ShardPaths) -> pa.Table:
    """Return the stored scores of a shard's documents (position -1) and of their texts."""
    return _stored(find_table(paths.output(DOCUMENT_SCORES), paths, DOCUMENT_SCORES), DOCUMENT_SCORES, paths)


def _stored(scores: pa.Table | None, stage: str, paths: ShardPaths) -> pa.Table:
    if scores is None:
        raise ShardError(f"shard {paths.key}: {paths.output(stage)} is missing: materialize {stage} again")
    return scores


def find_scores_of(stage: str, paths: ShardPaths, *, thumbnails: bool = False) -> pa.Table | None:
    """Return the scores that one stage has stored for a shard's images; None if the table is missing.

    Embeddings are left out, and thumbnails unless ``thumbnails``.
    """
    left_out = (EMBEDDING,) if thumbnails else (EMBEDDING, THUMBNAIL_COLUMN)
    return find_table(paths.output(stage), paths, stage, left_out)


def read_ledgers(paths: ShardPaths, stages: Sequence[str]) -> pa.Table:
    """Return the ledgers of a shard's ``stages``, one after the other; a stage without a ledger has no rows."""
    ledgers = [empty_ledger()]
    for stage in stages:
        if (ledger := find_table(paths.ledger(stage), paths, stage)) is not None:
            ledgers.append(ledger)
    return pa.concat_tables(ledgers)


def find_table(uri: str, paths: ShardPaths, stage: str, left_out: Collection[str] = ()) -> pa.Table | None:
    """Return the table at ``uri`` that the stage has stored, without columns ``left_out``; None if it is missing."""
    try:
        with open_parquet(uri, paths.options, advice=f"Delete it and materialize {stage} again.") as source:
            return source.read([name for name in source.schema.names if name not in left_out])
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    except ShardError as error:
        raise ShardError(f"shard {paths.key}: {error}") from error
