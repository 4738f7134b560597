"""Small numbered Parquet tables below the output root: what a sensor has seen, what automation has requested.

A table is written under a new number, and is in force once the cursor of its sensor names that number. A tick that
fails in between therefore changes nothing: the next one finds the table of the tick before.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from interleaved_assets.io.parquet.source import open_parquet
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.storage import files_in, join, remove_file
from interleaved_assets.model.errors import ShardError, StorageError
from interleaved_assets.settings import StorageSettings


class NoTable(StorageError):
    """There is no table with the number: the output root is another one than before, or was emptied."""


class NumberedTables(NamedTuple):
    """The tables of one kind."""

    folder: str
    """Where they lie below the output root."""
    schema: pa.Schema
    kind: str
    """What messages call one of them."""

    def uri(self, number: int, storage: StorageSettings) -> str:
        return join(storage.output_root, f"{self.folder}/{number}.parquet")

    def numbers(self, storage: StorageSettings) -> list[int]:
        """The numbers of the stored tables."""
        names = files_in(join(storage.output_root, self.folder), storage.options)
        return [int(number) for name in names if (number := name.removesuffix(".parquet")).isdecimal()]

    def read(self, number: int, storage: StorageSettings) -> pa.Table:
        """The table with this number; raises NoTable if it is missing, StorageError if it is damaged, or of
        another schema.
        """
        uri = self.uri(number, storage)
        try:
            with open_parquet(uri, storage.options) as source:
                table = source.read(source.schema.names)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise NoTable(
                    f"{storage.output_root} has no table of the last tick, as after a change of storage.output_root"
                ) from error
            raise
        except ShardError as error:
            raise StorageError(f"{uri} is not {self.kind}: {error}") from error
        if not table.schema.equals(self.schema):
            raise StorageError(f"{uri} is not {self.kind}: it has the columns {table.column_names}")
        return table

    def write(self, columns: Mapping[str, Sequence[object]], last: int, storage: StorageSettings) -> int:
        """Write a table, remove those before number ``last``, which is in force, and return the number of the new one.

        It is above the numbers of all stored tables: after a reset of the cursor ``last`` is 0, and an older table
        would otherwise count as the latest.
        """
        stored = self.numbers(storage)
        number = max([last, *stored]) + 1
        uri = self.uri(number, storage)
        with parquet_shard(uri, self.schema, storage_options=storage.options, hashed=False) as out:
            out.write(pa.table(columns, schema=self.schema))
        for older in stored:
            if older < last:
                remove_file(self.uri(older, storage), storage.options)
        return number
