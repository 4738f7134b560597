"""Reading and writing shards: tar and Parquet, local and remote, atomic and deterministic."""

from interleaved_assets.io.layout import ShardLayout
from interleaved_assets.io.parquet_reader import InterleavedParquetReader
from interleaved_assets.io.parquet_writer import InterleavedParquetWriter
from interleaved_assets.io.webdataset_reader import InterleavedWebdatasetReader
from interleaved_assets.io.webdataset_writer import InterleavedWebdatasetWriter

__all__ = [
    "InterleavedParquetReader",
    "InterleavedParquetWriter",
    "InterleavedWebdatasetReader",
    "InterleavedWebdatasetWriter",
    "ShardLayout",
]
