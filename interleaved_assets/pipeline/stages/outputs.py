"""Reading back what stages have stored of one shard: its scores and its ledgers."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from interleaved_assets.io.storage import StorageOptions, exists, filesystem, join, storage_errors
from interleaved_assets.model.ledger import empty_ledger
from interleaved_assets.pipeline.parallel import READERS, parallel_map
from interleaved_assets.pipeline.record import ShardPaths, read_valid_record
from interleaved_assets.pipeline.stages import clip_scores, image_scores
from interleaved_assets.pipeline.tables import find_table, read_table
from interleaved_assets.scoring.thumbnail import THUMBNAIL_COLUMN
from interleaved_assets.selection.positions import join_scores
from interleaved_assets.settings import Settings, StorageSettings

EMBEDDING_COLUMN: Final = "embedding"
LEDGER_STAGES: Final = ("normalized", "filtered", "final_tars")
"""The stages that write rows, each from those of the one before, and what they drop of them."""


def read_scores(paths: ShardPaths, settings: Settings, *, thumbnails: bool = False) -> pa.Table:
    """The stored scores of a shard's images, one row per image; CLIP's beside them where CLIP is on and has run.

    Embeddings are left out, and thumbnails unless asked for.

    Raises:
        ShardError: a score table is not there, or damaged.
        StorageError: the storage refuses it.
    """
    options = settings.storage.options
    scores = read_scores_of(image_scores.NAME, paths, options, thumbnails=thumbnails)
    if settings.clip.enabled and (added := find_scores_of(clip_scores.NAME, paths, options)) is not None:
        scores = join_scores(scores, added)
    return scores


def read_scores_of(stage: str, paths: ShardPaths, options: StorageOptions, *, thumbnails: bool = False) -> pa.Table:
    """The scores that one stage has stored of a shard's images, without embeddings; thumbnails if asked for.

    Raises:
        ShardError: the table is not there, or damaged.
        StorageError: the storage refuses it.
    """
    return read_table(
        paths.output(stage), options, shard=paths.key, stage=stage, left_out=_left_out(thumbnails=thumbnails)
    )


def find_scores_of(
    stage: str, paths: ShardPaths, options: StorageOptions, *, thumbnails: bool = False
) -> pa.Table | None:
    """The same as :func:`read_scores_of`; None where the table is not there.

    Raises:
        ShardError: the table is damaged.
        StorageError: the storage refuses it.
    """
    return find_table(
        paths.output(stage), options, shard=paths.key, stage=stage, left_out=_left_out(thumbnails=thumbnails)
    )


def find_sample_scores(paths: ShardPaths, options: StorageOptions) -> pa.Table | None:
    """What filters of samples judged a shard's samples by, one row per sample; None where the table is not there.

    Raises:
        ShardError: the table is damaged.
        StorageError: the storage refuses it.
    """
    return find_table(paths.sample_scores(), options, shard=paths.key, stage="filtered")


def read_ledgers(paths: ShardPaths, options: StorageOptions, stages: Sequence[str] = LEDGER_STAGES) -> pa.Table:
    """Everything that stages have dropped of a shard so far, stage by stage.

    Raises:
        ShardError: a ledger is damaged.
        StorageError: the storage refuses it.
    """
    ledgers = [empty_ledger()]
    for stage in stages:
        if (ledger := find_table(paths.ledger(stage), options, shard=paths.key, stage=stage)) is not None:
            ledgers.append(ledger)
    return pa.concat_tables(ledgers)


def scored_keys(storage: StorageSettings) -> list[str]:
    """Partition keys of every shard whose scores are there, sorted.

    Raises:
        ShardError: a record cannot be read.
        StorageError: the storage refuses it.
    """
    folder = join(storage.output_root, f"records/{image_scores.NAME}")
    if not exists(folder, storage.options):
        return []
    with storage_errors(folder, "list"):
        fs, path = filesystem(folder, storage.options)
        fs.invalidate_cache(path)
        found = fs.find(path)
    keys = sorted(name[len(path) + 1 :].removesuffix(".json") for name in found if name.endswith(".json"))

    def is_scored(key: str) -> bool:
        uri = ShardPaths(output_root=storage.output_root, key=key).record(image_scores.NAME)
        return read_valid_record(uri, storage.options) is not None

    scored = parallel_map(is_scored, keys, threads=READERS)
    return [key for key, yes in zip(keys, scored, strict=True) if yes]


def _left_out(*, thumbnails: bool) -> tuple[str, ...]:
    return (EMBEDDING_COLUMN,) if thumbnails else (EMBEDDING_COLUMN, THUMBNAIL_COLUMN)
