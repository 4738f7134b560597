"""Read a small table that a stage has stored: scores or a ledger."""

from collections.abc import Collection

import pyarrow as pa

from interleaved_assets.io.parquet.source import open_parquet
from interleaved_assets.io.storage import StorageOptions
from interleaved_assets.model.errors import ShardError, StorageError


def read_table(
    uri: str, storage_options: StorageOptions, *, shard: str, stage: str, left_out: Collection[str] = ()
) -> pa.Table:
    """The table at ``uri`` without the columns ``left_out``, if it has them; raises ShardError if it is missing."""
    table = find_table(uri, storage_options, shard=shard, stage=stage, left_out=left_out)
    if table is None:
        raise ShardError(f"shard {shard}: {uri} is missing: materialize {stage} again")
    return table


def find_table(
    uri: str, storage_options: StorageOptions, *, shard: str, stage: str, left_out: Collection[str] = ()
) -> pa.Table | None:
    """The same as :func:`read_table`; None if the table is missing."""
    advice = f"Delete it and materialize {stage} again."
    try:
        with open_parquet(uri, storage_options, advice=advice) as source:
            return source.read([name for name in source.schema.names if name not in left_out])
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    except ShardError as error:
        raise ShardError(f"shard {shard}: {error}") from error
