"""final_tars: the filtered rows as training tars, plain MINT-1T to any reader."""

from typing import Final

import pyarrow as pa

from interleaved_assets.io.batches import prefetch
from interleaved_assets.io.parquet_reader import read_parquet_shard
from interleaved_assets.io.parquet_writer import parquet_shard
from interleaved_assets.io.policy import apply_error_policy
from interleaved_assets.io.webdataset_writer import tar_shard
from interleaved_assets.model.ledger import LEDGER_SCHEMA, check_balance, drop_reasons, empty_ledger
from interleaved_assets.pipeline import filtered
from interleaved_assets.pipeline.record import OutputFile
from interleaved_assets.pipeline.stage import Shard, Stage, Work
from interleaved_assets.pipeline.tally import Tally
from interleaved_assets.settings import Settings

NAME: Final = "final_tars"


def write_tar(shard: Shard) -> Work:
    """Write ``tars/<key>.tar`` from the filtered rows, and the ledger of what the error policy drops on the way.

    Raises:
        UnsupportedModality: a row is neither text nor image nor metadata; nothing is written then.
        MaterializeError: a row has an error and the policy is ``error``.
    """
    settings = shard.settings
    seen, written = Tally(), Tally()
    ledgers = [empty_ledger()]
    batches = prefetch(
        read_parquet_shard(
            shard.paths.output(filtered.NAME),
            max_batch_bytes=settings.run.max_batch_bytes,
            storage_options=shard.options,
        )
    )
    with (
        parquet_shard(shard.paths.ledger(NAME), LEDGER_SCHEMA, storage_options=shard.options) as ledger_file,
        tar_shard(shard.paths.output(NAME), storage_options=shard.options) as tar_file,
    ):
        for table in batches:
            kept, ledger = apply_error_policy(table, settings.errors.on_materialize_error, shard=shard.key, stage=NAME)
            check_balance(f"shard {shard.key}, {NAME}", table.num_rows, kept.num_rows, ledger)
            seen.add(table)
            written.add(kept)
            ledgers.append(ledger)
            tar_file.write(kept)
        dropped = pa.concat_tables(ledgers)
        ledger_file.write(dropped)
    return Work(
        outputs={"rows": OutputFile.of(tar_file), "ledger": OutputFile.of(ledger_file)},
        counts_in=seen.counts,
        counts_out=written.counts,
        errors=dict(seen.errors),
        dropped=drop_reasons(dropped),
    )


def relevant(settings: Settings) -> dict[str, object]:
    """The policy for rows that still carry an error."""
    return {"on_materialize_error": settings.errors.on_materialize_error}


STAGE: Final = Stage(NAME, inputs=(filtered.NAME,), version=1, settings=relevant, run=write_tar)
