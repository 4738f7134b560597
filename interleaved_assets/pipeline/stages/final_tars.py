"""final_tars: the filtered rows as training tars in the MINT-1T format."""

from typing import Final

import pyarrow as pa

from interleaved_assets.io.batches import prefetch
from interleaved_assets.io.parquet.reader import read_parquet_shard
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.tar.writer import tar_shard
from interleaved_assets.model.ledger import LEDGER_SCHEMA
from interleaved_assets.pipeline.counts import write_by_error_policy
from interleaved_assets.pipeline.record import OutputFile
from interleaved_assets.pipeline.stage import ShardTask, Stage, Work
from interleaved_assets.pipeline.stages import filtered
from interleaved_assets.pipeline.stages.read_back import WrittenSamples
from interleaved_assets.settings import Settings

NAME: Final = "final_tars"


def write_tar(shard: ShardTask) -> Work:
    """Write ``tars/<key>.tar`` from the filtered rows, and the ledger of the rows that the error policy drops.

    The tar is then read back by the rules of ``webdataset`` and compared with the rows.

    Raises:
        ReadBackError: the samples that are read differ from those written.
        UnsupportedModality: a row is neither text nor image nor metadata; nothing is written then.
        MaterializeError: a row has an error and the policy is ``error``.
        IncompleteShard: too many samples lose rows to errors.
    """
    settings = shard.settings
    written = WrittenSamples()
    batches = prefetch(
        read_parquet_shard(
            shard.paths.output(filtered.NAME),
            max_batch_bytes=settings.run.max_batch_bytes,
            storage_options=shard.options,
        )
    )
    with (
        parquet_shard(shard.paths.ledger(NAME), LEDGER_SCHEMA, storage_options=shard.options) as ledger_file,
        tar_shard(
            shard.paths.output(NAME), storage_options=shard.options, limits=settings.limits.for_tars()
        ) as tar_file,
    ):

        def write(table: pa.Table) -> None:
            written.add(table)
            tar_file.write(table)

        facts, dropped = write_by_error_policy(batches, shard, NAME, write)
        ledger_file.write(dropped)
    tar = OutputFile.of(tar_file)
    read_back = written.compare(tar, shard.options)
    return Work(
        outputs={"rows": tar, "ledger": OutputFile.of(ledger_file)},
        **facts.model_dump(exclude={"counted"}),
        counted=facts.counted | read_back,
    )


def version_settings(settings: Settings) -> dict[str, object]:
    """The policy for rows that have an error; the limits change no tar, a sample over one of them fails it."""
    return {"on_materialize_error": settings.errors.on_materialize_error}


STAGE: Final = Stage(NAME, inputs=(filtered.NAME,), version=2, settings=version_settings, run=write_tar)
