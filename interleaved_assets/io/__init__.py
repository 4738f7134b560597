"""Read and write shards: tar and Parquet, local and remote; writes are atomic and deterministic."""

from typing import TYPE_CHECKING

from interleaved_assets.front_door import offered

if TYPE_CHECKING:
    from interleaved_assets.io.fill import materialize
    from interleaved_assets.io.limits import TarLimits
    from interleaved_assets.io.parquet.reader import InterleavedParquetReader, parquet_shard_schema, read_parquet_shard
    from interleaved_assets.io.parquet.writer import InterleavedParquetWriter, ParquetShard, parquet_shard
    from interleaved_assets.io.policy import apply_error_policy
    from interleaved_assets.io.reader import ShardReader
    from interleaved_assets.io.shard import read_shard, write_shard
    from interleaved_assets.io.tar.layout import ShardLayout
    from interleaved_assets.io.tar.reader import InterleavedWebdatasetReader, read_tar_shard
    from interleaved_assets.io.tar.writer import InterleavedWebdatasetWriter, TarShard, tar_shard
    from interleaved_assets.io.writer import ShardWriter
else:
    __getattr__, __dir__ = offered(
        __name__,
        {
            "limits": ("TarLimits",),
            "fill": ("materialize",),
            "parquet.reader": ("InterleavedParquetReader", "parquet_shard_schema", "read_parquet_shard"),
            "parquet.writer": ("InterleavedParquetWriter", "ParquetShard", "parquet_shard"),
            "policy": ("apply_error_policy",),
            "reader": ("ShardReader",),
            "shard": ("read_shard", "write_shard"),
            "tar.layout": ("ShardLayout",),
            "tar.reader": ("InterleavedWebdatasetReader", "read_tar_shard"),
            "tar.writer": ("InterleavedWebdatasetWriter", "TarShard", "tar_shard"),
            "writer": ("ShardWriter",),
        },
    )

__all__ = [
    "InterleavedParquetReader",
    "InterleavedParquetWriter",
    "InterleavedWebdatasetReader",
    "InterleavedWebdatasetWriter",
    "ParquetShard",
    "ShardLayout",
    "ShardReader",
    "ShardWriter",
    "TarLimits",
    "TarShard",
    "apply_error_policy",
    "materialize",
    "parquet_shard",
    "parquet_shard_schema",
    "read_parquet_shard",
    "read_shard",
    "read_tar_shard",
    "tar_shard",
    "write_shard",
]
