"""The content version of each shard for which automation last requested a run: a table below the output root.

Tables are numbered like snapshots. A table is written before its runs are requested and is in force once the cursor
names it; the runs that a failed tick did not request are therefore requested by the next tick.
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from interleaved_assets.io.parquet.source import open_parquet
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.storage import join
from interleaved_assets.model.errors import ShardError, StorageError
from interleaved_assets.settings import StorageSettings

FOLDER: Final = "state/requested"
_SCHEMA: Final = pa.schema(
    [pa.field("key", pa.string(), nullable=False), pa.field("version", pa.string(), nullable=False)]
)


def requested_uri(storage: StorageSettings, number: int) -> str:
    """URI of the table with this number."""
    return join(storage.output_root, f"{FOLDER}/{number}.parquet")


def read_requested(uri: str, storage_options: Mapping[str, object]) -> dict[str, str]:
    """The content version of the last request, by key.

    Raises:
        StorageError: the table is missing, unreadable or damaged.
    """
    try:
        with open_parquet(uri, storage_options) as source:
            table = source.read(source.schema.names)
    except ShardError as error:
        raise StorageError(f"{uri} is not a table of requested shards: {error}") from error
    if not table.schema.equals(_SCHEMA):
        raise StorageError(f"{uri} is not a table of requested shards: it has the columns {table.column_names}")
    return dict(zip(table["key"].to_pylist(), table["version"].to_pylist(), strict=True))


def write_requested(versions: Mapping[str, str], uri: str, storage_options: Mapping[str, object]) -> None:
    """Write the table atomically."""
    columns = {"key": list(versions), "version": list(versions.values())}
    with parquet_shard(uri, _SCHEMA, storage_options=storage_options, hashed=False) as out:
        out.write(pa.table(columns, schema=_SCHEMA))
