"""Reading and writing shards: tar and Parquet, local and remote, atomic and deterministic."""

from interleaved_assets.io.parquet.reader import InterleavedParquetReader
from interleaved_assets.io.parquet.writer import InterleavedParquetWriter
from interleaved_assets.io.tar.layout import ShardLayout
from interleaved_assets.io.tar.reader import InterleavedWebdatasetReader
from interleaved_assets.io.tar.writer import InterleavedWebdatasetWriter

__all__ = [
    "InterleavedParquetReader",
    "InterleavedParquetWriter",
    "InterleavedWebdatasetReader",
    "InterleavedWebdatasetWriter",
    "ShardLayout",
]
