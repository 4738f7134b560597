"""Small numbered Parquet tables below the output root: what a sensor has seen, what automation has requested.

A table is written under a new number, and is in force once the cursor of its sensor names that number.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from interleaved_assets.io.parquet.source import open_parquet
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.storage import files_in, join, remove_file
from interleaved_assets.model.errors import ShardError, StorageError
from interleaved_assets.settings import StorageSettings


def table_uri(storage: StorageSettings, folder: str, number: int) -> str:
    return join(storage.output_root, f"{folder}/{number}.parquet")


def read_numbered(uri: str, schema: pa.Schema, storage_options: Mapping[str, object], kind: str) -> pa.Table:
    """The table at ``uri``, which is to have this schema; ``kind`` says in messages what it should be."""
    try:
        with open_parquet(uri, storage_options) as source:
            table = source.read(source.schema.names)
    except ShardError as error:
        raise StorageError(f"{uri} is not {kind}: {error}") from error
    if not table.schema.equals(schema):
        raise StorageError(f"{uri} is not {kind}: it has the columns {table.column_names}")
    return table


def write_numbered(
    columns: Mapping[str, Sequence[object]], schema: pa.Schema, uri: str, storage_options: Mapping[str, object]
) -> None:
    with parquet_shard(uri, schema, storage_options=storage_options, hashed=False) as out:
        out.write(pa.table(columns, schema=schema))


def next_number(last: int, storage: StorageSettings, folder: str) -> int:
    """A number above ``last`` and above the numbers of all files below ``folder``.

    After a reset of the cursor, ``last`` is 0; an older file would otherwise count as the latest.
    """
    return max([last, *numbers_below(folder, storage)]) + 1


def remove_before(number: int, storage: StorageSettings, folder: str) -> None:
    """Remove the files below ``folder`` with a smaller number."""
    for older in (found for found in numbers_below(folder, storage) if found < number):
        remove_file(table_uri(storage, folder, older), storage.options)


def numbers_below(folder: str, storage: StorageSettings) -> list[int]:
    """The numbers of the files below ``folder``; empty if it does not exist."""
    names = files_in(join(storage.output_root, folder), storage.options)
    return [int(number) for name in names if (number := name.removesuffix(".parquet")).isdecimal()]
