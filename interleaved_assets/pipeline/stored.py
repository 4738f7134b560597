"""Reading back what stages have stored of one shard: its scores and its ledgers."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from interleaved_assets.io.storage import StorageOptions, exists, filesystem, join, open_input, storage_errors
from interleaved_assets.model.ledger import empty_ledger
from interleaved_assets.pipeline import clip_scores, image_scores
from interleaved_assets.pipeline.record import ShardPaths
from interleaved_assets.scoring.thumbnail import THUMBNAIL_COLUMN
from interleaved_assets.selection.match import join_scores
from interleaved_assets.settings import Settings, StorageSettings

EMBEDDING_COLUMN: Final = "embedding"
LEDGER_STAGES: Final = ("normalized", "filtered", "final_tars")


def read_scores(paths: ShardPaths, settings: Settings, *, thumbnails: bool = False) -> pa.Table:
    """The stored scores of a shard's images, one row per image; CLIP's beside them where CLIP is on and has run.

    Embeddings are left out, and thumbnails unless asked for.
    """
    options = settings.storage.options
    scores = _read(paths.output(image_scores.NAME), options, () if thumbnails else (THUMBNAIL_COLUMN,))
    clip_uri = paths.output(clip_scores.NAME)
    if settings.clip.enabled and exists(clip_uri, options):
        scores = join_scores(scores, _read(clip_uri, options, (EMBEDDING_COLUMN,)))
    return scores


def _read(uri: str, options: StorageOptions, left_out: Sequence[str]) -> pa.Table:
    with open_input(uri, options) as file:
        parquet = pq.ParquetFile(file)
        return parquet.read(columns=[name for name in parquet.schema_arrow.names if name not in left_out])


def read_ledgers(paths: ShardPaths, options: StorageOptions, stages: Sequence[str] = LEDGER_STAGES) -> pa.Table:
    """Everything that stages have dropped of a shard so far, stage by stage."""
    ledgers = [empty_ledger()]
    for stage in stages:
        if exists(paths.ledger(stage), options):
            with open_input(paths.ledger(stage), options) as file:
                ledgers.append(pq.read_table(file))
    return pa.concat_tables(ledgers)


def scored_keys(storage: StorageSettings) -> list[str]:
    """Partition keys of every shard that has been scored, sorted."""
    folder = join(storage.output_root, f"records/{image_scores.NAME}")
    with storage_errors(folder, "list"):
        fs, path = filesystem(folder, storage.options)
        fs.invalidate_cache(path)
        found = fs.find(path) if fs.exists(path) else []
    return sorted(name[len(path) + 1 :].removesuffix(".json") for name in found if name.endswith(".json"))
