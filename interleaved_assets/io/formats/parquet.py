"""The format of rows in Parquet."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from interleaved_assets.io.formats.format import ShardFormat
from interleaved_assets.io.parquet.reader import InterleavedParquetReader
from interleaved_assets.io.parquet.seal import MAGIC
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.tar.reader import ReadOptions


def _read(uri: str, options: ReadOptions) -> Iterator[pa.Table]:
    read_kwargs = {"storage_options": options.storage_options, "columns": options.columns}
    for batch in InterleavedParquetReader(uri, max_batch_bytes=options.max_batch_bytes, read_kwargs=read_kwargs):
        table = batch.to_pyarrow()
        yield from options.filled(table, uri) if options.materialize else [table]


PARQUET: Final = ShardFormat(
    name="parquet",
    endings=(".parquet",),
    magic=MAGIC,
    read=_read,
    write=lambda uri, schema, options, _: parquet_shard(uri, schema, storage_options=options),
)
