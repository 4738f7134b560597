"""The content version of each shard for which automation last requested a run: a table below the output root.

A table is written before its runs are requested and is in force once the cursor names it; the runs that a failed tick
did not request are therefore requested by the next tick.
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from interleaved_assets.pipeline.raw.numbered_tables import read_numbered, table_uri, write_numbered
from interleaved_assets.settings import StorageSettings

FOLDER: Final = "state/requested"
_SCHEMA: Final = pa.schema(
    [pa.field("key", pa.string(), nullable=False), pa.field("version", pa.string(), nullable=False)]
)


def requested_uri(storage: StorageSettings, number: int) -> str:
    return table_uri(storage, FOLDER, number)


def read_requested(uri: str, storage_options: Mapping[str, object]) -> dict[str, str]:
    """The content version of the last request, by key."""
    table = read_numbered(uri, _SCHEMA, storage_options, "a table of requested shards")
    return dict(zip(table["key"].to_pylist(), table["version"].to_pylist(), strict=True))


def write_requested(versions: Mapping[str, str], uri: str, storage_options: Mapping[str, object]) -> None:
    columns = {"key": list(versions), "version": list(versions.values())}
    write_numbered(columns, _SCHEMA, uri, storage_options)
