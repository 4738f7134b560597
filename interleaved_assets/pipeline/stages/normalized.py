"""normalized: a raw tar as Parquet with the image bytes in it, rows that could not be read settled by the policy."""

import itertools
from collections import Counter
from typing import Final

from interleaved_assets.io.batches import prefetch
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.tar.layout import ShardLayout
from interleaved_assets.io.tar.reader import read_tar_shard
from interleaved_assets.model.ledger import LEDGER_SCHEMA
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets.pipeline.counts import column_facts, write_by_error_policy
from interleaved_assets.pipeline.execute import ShardTask, Stage, Work
from interleaved_assets.pipeline.record import RAW_SHARDS, OutputFile
from interleaved_assets.settings import Settings

NAME: Final = "normalized"


def normalize(shard: ShardTask) -> Work:
    """Read the raw tar, write ``normalized/<key>.parquet`` and the ledger of what the policy dropped.

    Raises:
        ShardError: the shard is not a tar.
        MaterializeError: a row cannot be read and the policy is ``error``.
    """
    settings = shard.settings
    assert shard.raw is not None
    notes: Counter[str] = Counter()
    batches = prefetch(
        read_tar_shard(
            shard.raw.uri,
            layout=shard_layout(settings),
            max_batch_bytes=settings.run.max_batch_bytes,
            materialize=True,
            storage_options=shard.options,
            allowed_roots=[settings.storage.raw_root],
            max_unpacked_bytes=settings.run.max_unpacked_bytes,
            notes=notes,
        )
    )
    first = next(batches, INTERLEAVED_SCHEMA.empty_table())
    with (
        parquet_shard(shard.paths.ledger(NAME), LEDGER_SCHEMA, storage_options=shard.options) as ledger_file,
        parquet_shard(shard.paths.output(NAME), first.schema, storage_options=shard.options) as rows_file,
    ):
        facts, dropped = write_by_error_policy(itertools.chain([first], batches), shard, NAME, rows_file.write)
        ledger_file.write(dropped)
    return Work(
        outputs={"rows": OutputFile.of(rows_file), "ledger": OutputFile.of(ledger_file)},
        **facts.model_dump(exclude={"columns", "required", "notes"}),
        **column_facts(rows_file.schema),
        notes=dict(notes),
    )


def shard_layout(settings: Settings) -> ShardLayout:
    """How this data set's documents are laid out."""
    return ShardLayout(**settings.reading.model_dump())


def version_settings(settings: Settings) -> dict[str, object]:
    """The layout and the policy; the size of batches changes no output."""
    return {
        "reading": settings.reading.model_dump(mode="json"),
        "on_materialize_error": settings.errors.on_materialize_error,
    }


STAGE: Final = Stage(NAME, inputs=(RAW_SHARDS,), version=2, settings=version_settings, run=normalize)
