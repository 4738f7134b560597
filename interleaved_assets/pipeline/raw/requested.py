"""Which content of each shard automation has dealt with: a table of keys and versions below the output root.

Tables are numbered like the looks at the raw root: a table is written before its requests are launched, and counts from
then on that the cursor names it. What a tick that failed has not launched is thus found again.
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from interleaved_assets.io.storage import atomic_output, join, open_input
from interleaved_assets.model.errors import StorageError
from interleaved_assets.settings import StorageSettings

FOLDER: Final = "state/requested"
_SCHEMA: Final = pa.schema(
    [pa.field("key", pa.string(), nullable=False), pa.field("version", pa.string(), nullable=False)]
)


def requested_uri(storage: StorageSettings, number: int) -> str:
    """Where the table with this number is."""
    return join(storage.output_root, f"{FOLDER}/{number}.parquet")


def read_requested(uri: str, storage_options: Mapping[str, object]) -> dict[str, str]:
    """The content version that was dealt with last, by key.

    Raises:
        StorageError: the table is missing, unreadable or damaged.
    """
    try:
        with open_input(uri, storage_options) as file:
            table = pq.read_table(file)
    except pa.ArrowException as error:
        raise StorageError(f"{uri} is no table of requested shards: {error}") from error
    if not table.schema.equals(_SCHEMA):
        raise StorageError(f"{uri} is no table of requested shards: it has the columns {table.column_names}")
    return dict(zip(table["key"].to_pylist(), table["version"].to_pylist(), strict=True))


def write_requested(versions: Mapping[str, str], uri: str, storage_options: Mapping[str, object]) -> None:
    """Write the table atomically."""
    columns = {"key": list(versions), "version": list(versions.values())}
    with atomic_output(uri, storage_options) as out:
        pq.write_table(pa.table(columns, schema=_SCHEMA), out, compression="zstd")
