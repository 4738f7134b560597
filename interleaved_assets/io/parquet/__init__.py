"""The Parquet form of a shard."""
