"""Reading back a small table that a stage has stored: scores, a ledger."""

from collections.abc import Collection

import pyarrow as pa
import pyarrow.parquet as pq

from interleaved_assets.io.storage import StorageOptions, open_input
from interleaved_assets.model.errors import ShardError, StorageError


def read_table(
    uri: str, storage_options: StorageOptions, *, shard: str, stage: str, left_out: Collection[str] = ()
) -> pa.Table:
    """The whole table at ``uri``, but for the columns ``left_out``.

    Args:
        uri: the Parquet file.
        storage_options: what fsspec needs.
        shard: partition key of the shard it is of, for messages.
        stage: name of the stage that wrote it, likewise.
        left_out: names of columns that are not read; those that it does not have make no difference.

    Raises:
        ShardError: it is not there, or damaged.
        StorageError: the storage refuses it.
        StorageUnavailable: the storage did not answer.
    """
    table = find_table(uri, storage_options, shard=shard, stage=stage, left_out=left_out)
    if table is None:
        raise ShardError(f"shard {shard}: {uri} is not there: materialize {stage} again")
    return table


def find_table(
    uri: str, storage_options: StorageOptions, *, shard: str, stage: str, left_out: Collection[str] = ()
) -> pa.Table | None:
    """The same as :func:`read_table`; None where the table is not there.

    Raises:
        ShardError: it is damaged.
        StorageError: the storage refuses it.
        StorageUnavailable: the storage did not answer.
    """
    try:
        with open_input(uri, storage_options) as file:
            parquet = pq.ParquetFile(file)
            names = [name for name in parquet.schema_arrow.names if name not in left_out]
            # a few columns of one shard: handing them to threads takes longer than reading them
            return parquet.read(columns=names, use_threads=False)
    except StorageError as error:
        # what Arrow raises for damage is an OSError too, without a number, and comes here as a StorageError
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        if type(error.__cause__) is OSError and error.__cause__.errno is None:
            raise _damaged(uri, shard, stage, error.__cause__) from error
        raise
    except pa.ArrowException as error:
        if isinstance(error, MemoryError):
            raise
        raise _damaged(uri, shard, stage, error) from error


def _damaged(uri: str, shard: str, stage: str, error: Exception) -> ShardError:
    reason = " ".join(str(error).split())
    return ShardError(
        f"shard {shard}: {uri} is not a sound Parquet file ({reason}): delete it and materialize {stage} again"
    )
